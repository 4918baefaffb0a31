"""mpi4py's own tests, on Open MPI over UCX. Debian has the module, and PyPI the tests of it.

A message left over in one test fails those after it. Ranks spin for the locks of windows:
`test_rma` with four ranks on two busy processors does not end in eight minutes.
"""

from functools import partial
from itertools import islice

from lab.dropin.case import Case, Program
from lab.dropin.middleware import open_mpi
from lab.programs.middleware import ucx_environment
from lab.programs.trial import trials
from lab.requirements import SourcePackage

SHA256 = "17858f2ebc623220d0120d1fa8d428d033dde749c4bc35b33d81a66ad7f93480"
TESTS = SourcePackage("mpi4py", "3.1.4", SHA256)
# Modules that are left out, and why.
LEFT_OUT = {
    # they start processes by the dozen, which takes minutes
    *("test_spawn", "test_dynproc"),
    # Open MPI 4.1 crashes when it frees a dynamic window, over TCP, too
    "test_win",
}
# For the reason that the README gives: what is replaced has no order over UD, nor where packets are
# lost.
REPLACING = {"test_rma"}
SAMPLE = ["test_p2p_buf", "test_cco_nb_buf", "test_pickle"]


def mpi4py_trials():
    yield from made("sample", sample, large=False)
    # More takes minutes each: four ranks on two processors, and UD, which with losses takes many.
    yield from islice(made("sample/4-ranks", partial(sample, ranks=4)), 1)
    yield from made("all/rc_v", partial(all_modules, transport="rc_v"))
    yield from islice(made("all/ud_v", partial(all_modules, transport="ud_v")), 1)


def made(name, make, large=True):
    package = "python3-mpi4py"
    return trials(f"mpi4py/{name}", package, make, None, ("loopback",), large, TESTS)


def sample(name, place, tcp, ranks=2):
    return case(name, place, "rc_v", ranks, [f"--include={module}" for module in SAMPLE], 120)


def all_modules(name, place, tcp, transport):
    one_sided = transport == "rc_v" and "drop" not in name
    left_out = LEFT_OUT | (set() if one_sided else REPLACING)
    options = [f"--exclude={module}" for module in sorted(left_out)]
    return case(name, place, transport, 2, options, 500)


def case(name, place, transport, ranks, options, seconds):
    # A rank sends to itself without a device, as it does everywhere: the tests count on that to be
    # done at once.
    environment = [*ucx_environment(f"{transport},self", place, False)[1:-1], "UCX_LOG_LEVEL=fatal"]
    program = ("/usr/bin/python3", "-B", "{mpi4py}/test/runtests.py", "--quiet", *options)
    argv = (*open_mpi(ranks, environment), *program)
    return Case(name, place, Program(argv, (r".*OK.*",)), seconds=seconds, sysfs=True)
