"""Cases of connection management, in the order of the run."""

from lab.interop.cm import exchanges, failures, steps


def cm_cases():
    for kernel in ["6.1", "6.12"]:
        yield from exchanges.rping(kernel)
        yield from exchanges.ucmatose(kernel)
        yield from exchanges.udaddy(kernel)
        yield from exchanges.mckey(kernel)
        yield from exchanges.samples(kernel)
        yield from failures.refusals(kernel)
        yield from failures.killed(kernel)
        yield from steps.reject_with_data(kernel)
        yield from steps.destroyed_queue_pairs(kernel)
        yield steps.stale_connection(kernel)
    # With one kernel only: it waits for seconds before it repeats.
    yield from exchanges.losses("6.1")
    yield from exchanges.in_a_row("6.1")
    # The others run while they wait.
    for kernel in ["6.1", "6.12"]:
        yield from failures.no_response(kernel)
    yield failures.unreachable("6.1")
