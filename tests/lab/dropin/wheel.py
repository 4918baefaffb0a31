"""Programs with a copy of libibverbs under another name, as Python wheels bring it, in a place that
they look at first.
"""

from pathlib import Path

from lab.dropin.case import Case, Program
from lab.host import output_of

COPY = "libibverbs-1de1263b.so.1.14.48.0"
LINE = rf"roce: /.*/{COPY} is loaded, too, and its users bypass roce;.*"


def wheel_cases():
    found = ("2 devices",)
    yield Case("wheel/environment", "alone", Program(("{python}", "{module}"), found))
    named = Program(("{outside}", "{module}"), found)
    yield Case("wheel/named", "alone", named, run=("--also", COPY))
    # The library comes into the process, too, and the module keeps its copy.
    both = ("{outside}", "{module}", "libibverbs.so.1")
    yield Case("wheel/second", "alone", Program(both, ("0 devices", LINE)))


def build_wheel(directory):
    """Makes an environment with a wheel; returns the paths of its parts by the words of command
    lines.
    """
    source = Path(__file__).resolve().parent / "wheel.c"
    environment = directory / "environment"
    packages = environment / "lib" / "python3.11" / "site-packages"
    copy, module = packages / "wheel.libs" / COPY, packages / "module.so"
    python, outside = environment / "bin" / "python", directory / "outside"
    for path in [copy, python]:
        path.parent.mkdir(parents=True)
    shared = ["gcc", "-shared", "-fPIC", source, "-o"]
    output_of([*shared, copy, "-DCOPY", f"-Wl,-soname,{COPY}"])
    place = f"-Wl,--disable-new-dtags,-rpath,{copy.parent}"
    output_of([*shared, module, "-DEXTENSION", place, copy])
    for program in [python, outside]:
        output_of(["gcc", source, "-o", program])
    return {"python": python, "module": module, "outside": outside}
