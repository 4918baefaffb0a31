"""The host: the repository, the cache, and commands that run to their end."""

import fcntl
import os
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
# Port of RoCEv2 in UDP.
ROCE_PORT = 4791


class LabError(Exception):
    """Failure of the laboratory itself, not of the program under test."""


def cache_dir():
    """Directory of kernels, initramfs images and the logs of failed runs."""
    path = Path(os.environ.get("ROCE_INTEROP_DIR", REPO / "target" / "interop"))
    path.mkdir(parents=True, exist_ok=True)
    return path


def output_of(argv, **options):
    """Output of a program that runs to its end; its failure is a `LabError`."""
    argv = [str(word) for word in argv]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise LabError(
            f"{' '.join(argv)}: exit status {done.returncode}\n{done.stdout}{done.stderr}"
        )
    return done.stdout


@contextmanager
def cache_lock():
    """Lock of the cache: two runs at once must not build the same thing."""
    with open(cache_dir() / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def scratch_dir():
    """Directory on the cache's file system: what is finished leaves it by a rename, so that nothing
    half-made is cached.
    """
    with tempfile.TemporaryDirectory(dir=cache_dir(), prefix="scratch-") as path:
        yield Path(path)
