"""Cases whose programs are checked for what works by luck, by `roce run --check`."""

import shutil
from dataclasses import replace
from pathlib import Path

from lab.dropin.case import Case

# How much longer checked programs may take.
SLOWER = 4
# What is found of stock programs, each with the reason why it is so.
FINDINGS = Path(__file__).with_name("findings.txt")


def place_findings(roce):
    """Copies the file to the others, where every user can read it."""
    shutil.copy(FINDINGS, roce.parent)


def checked(cases, words):
    """Those of the cases that can be checked, checked: valgrind and pyverbs look for themselves."""
    options = (f"--check={words}", "--suppressions", "{ours}/findings.txt")
    return [
        replace(case, run=(*case.run, *options), seconds=case.seconds * SLOWER)
        for case in cases
        if isinstance(case, Case) and not case.name.startswith("memcheck/")
    ]
