"""Records of what a device does otherwise than `roce conform` wants: `conformance/known/*.txt`.

The first line names the device. Each other line has a case, its verdict and, behind a colon, what
was found. What has no line conforms; what is inconclusive has now one verdict, now another.
"""

import re

from lab.host import REPO

INCONCLUSIVE = "inconclusive"
DIRECTORY = REPO / "conformance" / "known"


def path_of(kernel):
    return DIRECTORY / f"rxe-{kernel}.txt"


def read(kernel):
    """{case: (verdict, finding)} of those that do not conform."""
    verdicts = {}
    for line in path_of(kernel).read_text().splitlines()[1:]:
        case, rest = line.split(" ", 1)
        verdict, _, finding = rest.partition(": ")
        verdicts[case] = verdict, finding
    return verdicts


def write(kernel, version, results):
    """Records results: {case: (verdict, finding)}; one run does not settle what is inconclusive."""
    before = read(kernel) if path_of(kernel).exists() else {}
    unsettled = {
        name: found
        for name, found in before.items()
        if found[0] == INCONCLUSIVE and name in results
    }
    results = {**results, **unsettled}
    lines = [f"rxe of Linux {version}"]
    for case, (verdict, finding) in sorted(results.items()):
        if verdict != "conforms":
            # lines of the file of cases come and go
            found = re.sub(r"^line \d+: ", "", " ".join(finding.split()))
            lines.append(f"{case} {verdict}: {found}" if found else f"{case} {verdict}")
    DIRECTORY.mkdir(exist_ok=True)
    path_of(kernel).write_text("\n".join(lines) + "\n")


def differences(recorded, results):
    """What differs from the record, a line each."""
    lines = []
    for case, (verdict, finding) in sorted(results.items()):
        before, _ = recorded.get(case, ("conforms", ""))
        if before not in (verdict, INCONCLUSIVE):
            lines.append(f"{case}: {verdict}, recorded is {before}: {finding}")
    return lines
