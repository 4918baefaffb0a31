"""The page docs/guide/pyverbs.md: outcomes of rdma-core's own tests, and why some are skipped."""

from collections import Counter

from lab.host import REPO, output_of

PAGE = REPO / "docs" / "guide" / "pyverbs.md"

HEAD = """\
# rdma-core's own tests

Outcome of rdma-core's test suite for the verbs (pyverbs, version {version}, as Debian ships it) on
this adapter. `tests/lab/run dropin` runs it and compares; its option `--pin` writes this page and
the list of those that pass.

Of the {total} tests that are for devices of any kind {passed} pass, {skipped} are skipped, \
and none fails. The
chapter on [existing programs](programs.md) shows how to run them by hand.

Those of `test_flow` and `test_qp` that need root are skipped here, since the suite runs as nobody.
On a raw device the suite runs these modules again, as root, and every test of theirs passes, those
of [raw packets and flows](raw.md#raw-packets-and-flows) included. `test_rss_traffic` fails there:
it expects work queues, which are `EOPNOTSUPP`, and does not skip then.

"""


def write_page(outcomes):
    """Writes the page; `outcomes`: test's name -> (word, text)."""
    PAGE.write_text("".join([*head(outcomes), *modules(outcomes), *skipped(outcomes)]))


def head(outcomes):
    counts = Counter(word for word, _ in outcomes.values())
    version = output_of(["dpkg-query", "-W", "-f", "${Version}", "python3-pyverbs"])
    numbers = {"total": len(outcomes), "passed": counts["pass"], "skipped": counts["skip"]}
    yield HEAD.format(version=version, **numbers)


def modules(outcomes):
    yield "| module | pass | skip |\n|---|---|---|\n"
    words = {}
    for name, (word, _) in sorted(outcomes.items()):
        words.setdefault(name.split(".")[1], []).append(word)
    for module, own in words.items():
        yield f"| `{module}` | {own.count('pass')} | {own.count('skip') or ''} |\n"


def skipped(outcomes):
    yield "\n## Skipped, and why\n\nIn the suite's own words.\n\n| why | tests |\n|---|---|\n"
    reasons = {}
    for name, (word, text) in sorted(outcomes.items()):
        if word == "skip":
            reasons.setdefault(" ".join(text.split()).replace("|", "\\|"), []).append(name)
    for reason, names in sorted(reasons.items()):
        shown = ", ".join(f"`{name.removeprefix('tests.')}`" for name in names)
        yield f"| {reason} | {shown} |\n"
