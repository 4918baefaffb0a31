"""Check of docs/compliance.md: it names exactly the rows of `errors`, and tests that exist."""

import re

from lab.host import REPO
from lab.interop.rows import errors

DOCUMENT = REPO / "docs" / "compliance.md"
TESTS = REPO / "transport" / "tests" / "pair"


def compliance_problems():
    """Problems of the document."""
    text = DOCUMENT.read_text()
    existing = {row.name for row in errors.rows()}
    # `interop: a/{b,c}` stands for two rows, and `pair::file::test` for a test in virtual time.
    named = {name for group in re.findall(r"`interop: ([^`]+)`", text) for name in expanded(group)}
    problems = [
        f"{DOCUMENT.name} names the row {name}, which does not exist"
        for name in sorted(named - existing)
    ]
    problems += [
        f"{DOCUMENT.name} does not name the row {name}" for name in sorted(existing - named)
    ]
    for file, test in re.findall(r"`pair::(\w+)::(\w+)`", text):
        path = TESTS / f"{file}.rs"
        if not path.exists() or f"fn {test}(" not in path.read_text():
            problems.append(f"{DOCUMENT.name} names the test {file}::{test}, which does not exist")
    return problems


def expanded(text):
    """All texts that a text with {alternatives} stands for."""
    match = re.search(r"\{([^{}]*)\}", text)
    if not match:
        return [text]
    return [
        name
        for word in match[1].split(",")
        for name in expanded(text[: match.start()] + word + text[match.end() :])
    ]
