"""Command line of the suites: options, the choice of cases, and the directory of a run's logs."""

import argparse
import os
import signal
import sys
import tempfile
from pathlib import Path

from lab.conform import suite as conform
from lab.dropin import suite as dropin
from lab.host import LabError
from lab.interop import suite as interop
from lab.load import suite as load
from lab.programs import suite as programs
from lab.report import keep_logs, say
from lab.requirements import MissingError, require
from lab.soak import suite as soak

SUITES = {
    "interop": interop,
    "conform": conform,
    "dropin": dropin,
    "load": load,
    "programs": programs,
    "soak": soak,
}


def main():
    """Runs a suite; returns the exit status: 0 if all cases pass, 1 if not, 2 if none can run."""
    options = parse_arguments()
    suite = SUITES[options.suite]
    if options.first >= options.every:
        say(f"--from {options.first}: it must be less than --every, which is {options.every}")
        return 2
    cases = choose(suite.cases(), options.only)
    chosen = suite.of_form(options, cases)[options.first :: options.every]
    if options.list:
        print("\n".join(case.name for case in chosen))
        return 0
    problem = refusal(suite, options, cases, chosen)
    if problem:
        say(problem)
        return 2
    # As with Ctrl-C, so that everything is taken down.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(129))
    # A root shell does not always look where modprobe, dpkg and ip are.
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    try:
        require(suite.requirements(chosen), options.install, options.suite)
    except MissingError as error:
        say(str(error))
        return 2
    except LabError as error:
        say(f"the lab failed: {error}")
        return 1
    return run(suite, options, chosen)


def parse_arguments():
    parser = argparse.ArgumentParser(prog="tests/lab/run", description=sys.modules["lab"].__doc__)
    parsers = parser.add_subparsers(dest="suite", required=True)
    for name, suite in SUITES.items():
        own = parsers.add_parser(name, description=suite.__doc__, help=suite.__doc__)
        own.add_argument("--list", action="store_true", help="print the names of the cases only")
        own.add_argument(
            "--only",
            metavar="SUBSTRING",
            action="append",
            default=[],
            help="run only the case of this name, or all whose names contain it; may be given "
            "several times",
        )
        own.add_argument(
            "--every",
            metavar="N",
            type=positive,
            default=1,
            help="of those, run only one of each N, as a sample: the first, or number K of --from",
        )
        own.add_argument(
            "--from",
            metavar="K",
            dest="first",
            type=natural,
            default=0,
            help="of each N, run number K, counted from 0: another sample for each K below N; "
            "by default %(default)s",
        )
        own.add_argument(
            "--install", action="store_true", help="install and download what is missing"
        )
        suite.add_arguments(own)
    return parser.parse_args()


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return value


def natural(text):
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is not 0 or more")
    return value


def choose(cases, texts):
    """The cases that one of the texts stands for; without texts, all."""
    chosen = {case.name for text in texts for case in named(cases, text)}
    return [case for case in cases if case.name in chosen or not texts]


def named(cases, text):
    """The case of this name, though others may begin with it; else all whose names contain it."""
    exact = [case for case in cases if case.name == text]
    return exact or [case for case in cases if text in case.name]


def refusal(suite, options, cases, chosen):
    """Reason why nothing can be run, if there is one; `cases` has those of other forms, too."""
    for text in options.only:
        if not named(suite.cases(), text):
            return f"no case has {text!r} in its name; --list shows them all"
    if os.geteuid() != 0:
        return "this needs root, for network namespaces"
    if not chosen and suite.of_form(options, cases):
        return f"--from {options.first}: there are no more cases"
    return suite.refusal(options, chosen)


def run(suite, options, chosen):
    # Not in /tmp: each program of the suite "dropin" has one of its own. Readable: its programs run
    # as nobody.
    logs = Path(tempfile.mkdtemp(prefix=f"roce-{options.suite}-", dir="/var/tmp"))
    logs.chmod(0o755)
    failed = True
    try:
        failed = suite.run(options, chosen, logs) > 0
    except LabError as error:
        say(f"the lab failed: {error}")
    except KeyboardInterrupt:
        say("interrupted")
    finally:
        keep_logs(logs, f"failed-{options.suite}", failed)
    return 1 if failed else 0
