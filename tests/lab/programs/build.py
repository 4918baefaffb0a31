"""What the programs need: those in C, compiled, and files."""

import os
import random
import shutil
from pathlib import Path

from lab.host import output_of

SOURCES = Path(__file__).resolve().parent
MEBIBYTE = 1 << 20
# What `mpirun` starts in the place of ssh: HOST COMMAND.
REMOTE_SHELL = """#!/bin/sh
host=$1
shift
echo "$*" | exec socat -t 100 - "TCP:$host:2222"
"""


def build(directory):
    """Makes it in `directory`; returns the paths by the words of command lines."""
    directory.mkdir()
    for name in ["openmpi", "mpich"]:
        compiler = [f"mpicc.{name}", "-Wall", "-Werror", "-O1"]
        output_of([*compiler, "-o", directory / f"mpi_{name}", SOURCES / "mpi_check.c"])
    shutil.copy(SOURCES / "migrate.py", directory)
    (directory / "remote_shell").write_text(REMOTE_SHELL)
    (directory / "memory").write_bytes(random.randbytes(96 * MEBIBYTE))
    for path in directory.iterdir():
        os.chmod(path, 0o755)
    return {
        "mpi_openmpi": directory / "mpi_openmpi",
        "mpi_mpich": directory / "mpi_mpich",
        "migrate": directory / "migrate.py",
        "remote_shell": directory / "remote_shell",
        "memory": directory / "memory",
    }
