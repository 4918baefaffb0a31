"""Programs under valgrind's memcheck, which has no error of the library to report: what it does not
know (system calls, memory that others write) it would report in the program's name.
"""

from lab.dropin.case import SOCKETS, Case, Program

# Every line of valgrind's own begins so; with -q there is none but errors.
MEMCHECK = ("valgrind", "-q", "--error-exitcode=99")
REPORTED = ("==",)


def memcheck_cases():
    tutorial = ("{tutorial}", "{device}", "{gid}")
    right = (r"the peer wrote 65536 bytes, all as they should be",)
    yield memcheck("tutorial", (*tutorial, "{server}"), tutorial, right, "tcp:18516")
    ping = ("-C", 5, "-V")
    yield memcheck(
        "rping",
        ("rping", "-c", "-a", "{server}", *ping),
        ("rping", "-s", "-a", "{own}", *ping),
        (),
        "cm",
        SOCKETS,
    )


def memcheck(name, client, server, lines, ready, variables=()):
    return Case(
        f"memcheck/{name}",
        "loopback",
        Program((*MEMCHECK, *client), lines, REPORTED),
        Program((*MEMCHECK, *server), lines, REPORTED),
        ready,
        variables=variables,
    )
