"""RDMA without hardware: a RoCEv2 adapter in user space.

`python -m roce run -- PROGRAM` runs a program that uses libibverbs or librdmacm on it, as the
command `roce`, which this package brings, does.
"""

import importlib.metadata
import subprocess


def command():
    """Path of the tool `roce`."""
    for file in importlib.metadata.distribution("roce").files or ():
        if file.name == "roce" and file.parent.name == "bin":
            return str(file.locate().resolve())
    raise FileNotFoundError("the tool roce is missing: pip install --force-reinstall roce")


def library():
    """Directory for LD_LIBRARY_PATH: the C library as libibverbs and as librdmacm."""
    return subprocess.run(
        [command(), "unpack"], check=True, capture_output=True, text=True
    ).stdout.strip()
