"""Binaries under test: from the environment, from `target/release`, or built there."""

import os
import re
import subprocess
from pathlib import Path

from lab.host import REPO, LabError
from lab.report import say

RELEASE = REPO / "target" / "release"


def roce():
    """The tool."""
    return find("ROCE_BIN", RELEASE / "roce", "--workspace", "--bin", "roce")


def library():
    """The C library."""
    return find("ROCE_ABI", RELEASE / "libroce_abi.so", "--package", "roce-abi")


def sockets():
    """The library that has TCP go over rsockets."""
    return find("ROCE_SOCKETS", RELEASE / "librspreload.so", "--package", "roce-preload")


def interop_peer():
    """The program that executes verbs by commands."""
    name = "roce-interop-peer"
    return find("ROCE_PEER", RELEASE / name, "--package", name, "--bin", name)


def cm_programs(directory):
    """Builds the programs of connection management beside the tool's binary, in `directory`."""
    find("", directory / "examples" / "cm_client", "--example", "cm_client")
    find("", directory / "examples" / "cm_server", "--example", "cm_server")
    steps = "roce-interop-steps"
    find("", directory / steps, "--package", "roce-interop-peer", "--bin", steps)


def find(variable, default, *cargo_arguments):
    """Path in the environment's variable, or the default one, which is built if it is absent, and
    must not be older than what it is made of.
    """
    path = Path(os.environ.get(variable) or default).resolve()
    build = ["cargo", "build", "--release", *cargo_arguments]
    if path == default.resolve() and not path.exists():
        say(f"building {path.name}")
        subprocess.run(build, cwd=REPO)
    if not os.access(path, os.R_OK):
        raise LabError(f"{path} does not exist")
    if path == default.resolve() and (newer := newer_source(path)):
        raise LabError(f"{path} is older than {newer}: `{' '.join(build)}` makes it anew")
    return path


def newer_source(path):
    """A source file that has changed since this was built, as Cargo lists them beside it."""
    listed = path.with_suffix(".d")
    if not listed.exists():
        return None
    _, _, sources = listed.read_text().partition(": ")
    built = path.stat().st_mtime
    for source in map(Path, re.split(r"(?<!\\)\s+", sources.strip())):
        is_generated = REPO / "target" in source.parents
        if not is_generated and source.exists() and source.stat().st_mtime > built:
            return source
    return None
