"""What the programs need: those in C, compiled, and files."""

import os
import random
import shutil
from pathlib import Path

from lab.host import output_of
from lab.programs.mpi_wheels import MpiWheel

SOURCES = Path(__file__).resolve().parent
MEBIBYTE = 1 << 20
SCRIPTS = [
    *("migrate.py", "iscsi_target.py", "mooncake_agent.py", "nixl_agent.py", "fabtests_agent.py"),
    *("peer.py", "transfer.py", "ceph_agent.py"),
]
# What `mpirun` starts in the place of ssh: HOST COMMAND.
REMOTE_SHELL = """#!/bin/sh
host=$1
shift
echo "$*" | exec socat -t 100 - "TCP:$host:2222"
"""


def build(directory, sources):
    """Makes it in `directory`, with copies of the packages of PyPI that every user can read;
    returns the paths by the words of command lines.
    """
    directory.mkdir()
    for name in ["openmpi", "mpich"]:
        compile_check([f"mpicc.{name}"], directory / f"mpi_{name}")
    compile_pingpong(directory / "tensorpipe_pingpong")
    for name in SCRIPTS:
        shutil.copy(SOURCES / name, directory)
    (directory / "remote_shell").write_text(REMOTE_SHELL)
    (directory / "memory").write_bytes(random.randbytes(96 * MEBIBYTE))
    for path in directory.iterdir():
        os.chmod(path, 0o755)
    for source in [source for source in sources if source.directory.exists()]:
        copy = shutil.copytree(source.directory, directory / source.word, symlinks=True)
        if isinstance(source, MpiWheel):
            compile_check(source.compiler(copy), copy / "mpi_check")
    return {
        **{source.word: directory / source.word for source in sources},
        "mpi_openmpi": directory / "mpi_openmpi",
        "mpi_mpich": directory / "mpi_mpich",
        "migrate": directory / "migrate.py",
        "target": directory / "iscsi_target.py",
        "mooncake_agent": directory / "mooncake_agent.py",
        "nixl_agent": directory / "nixl_agent.py",
        "fabtests_agent": directory / "fabtests_agent.py",
        "tensorpipe_pingpong": directory / "tensorpipe_pingpong",
        "ceph_agent": directory / "ceph_agent.py",
        "remote_shell": directory / "remote_shell",
        "memory": directory / "memory",
    }


def compile_check(compiler, target):
    options = ["-Wall", "-Werror", "-O1", "-o", target, SOURCES / "mpi_check.c"]
    output_of([*compiler, *options])


def compile_pingpong(target):
    options = ["-std=c++17", "-Wall", "-Werror", "-O1", "-o", target]
    output_of(["g++", *options, SOURCES / "tensorpipe_pingpong.cc", "-ltensorpipe"])
