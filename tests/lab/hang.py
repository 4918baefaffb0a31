"""What a program is doing that has not ended in its time."""

import shutil
import subprocess
from pathlib import Path

# Time that the debugger has for one process.
DEBUGGER_SECONDS = 20
# Of each thread: the function of the kernel that it waits in, and its system call with arguments.
THREAD_FILES = ["comm", "wchan", "syscall"]


def describe_host(pid):
    """A process of the host and those that it has started: state, threads, and their stacks where
    gdb is installed.
    """
    return "\n".join(describe_process(number) for number in family(pid))


def family(pid):
    """The process and those that it has started, and so on."""
    found = [pid]
    for parent in found:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            found += map(int, read(children).split())
    return found


def describe_process(pid):
    directory = Path(f"/proc/{pid}")
    command = read(directory / "cmdline").replace("\0", " ")
    state = [line for line in read(directory / "status").splitlines() if line.startswith("State")]
    lines = [f"process {pid}: {command}", *state]
    for thread in sorted(directory.glob("task/*")):
        facts = [read(thread / name).strip() for name in THREAD_FILES]
        lines.append(f"thread {thread.name}: {'; '.join(facts)}")
    return "\n".join([*lines, stacks(pid)])


def stacks(pid):
    if not shutil.which("gdb"):
        return "(gdb is not installed: no stacks)"
    # it would look for symbols on the net
    options = ["-batch", "-nx", "-iex", "set debuginfod enabled off"]
    command = ["gdb", *options, "-p", str(pid), "-ex", "thread apply all bt"]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=DEBUGGER_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "(gdb does not end)"
    lines = done.stdout.splitlines()
    return "\n".join(line for line in lines if line.startswith(("Thread ", "#")))


def describe_guest(guest, pid):
    """The same of a process of the guest, where there is no debugger."""
    files = " ".join(f"$t/{name}" for name in [*THREAD_FILES, "stack"])
    return guest.run(f"for t in /proc/{pid}/task/*; do echo $t; cat {files}; echo; done")[1]


def read(path):
    """A file of /proc; empty if the process has ended meanwhile."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
