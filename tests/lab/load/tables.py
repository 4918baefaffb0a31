"""The tables of a run, in Markdown."""

from statistics import median

from lab.load.bandwidth import NETWORKS, PLANS, STATES, yardstick_of

TITLES = {
    "mtu4096": "wire, path MTU 4096",
    "mtu1024": "wire, path MTU 1024",
    "memory": "shared memory",
    "large-memory": "shared memory, beyond caches",
}


def bandwidth_table(outcomes):
    """Bandwidth on the quiet machine, and beside other programs; `outcomes` are by name."""
    lines = []
    for network in NETWORKS:
        plans = {"yardstick": yardstick_of(network), **PLANS}
        names = {what: plan.name for what, plan in plans.items()}
        rows = []
        for what, name in names.items():
            found = [outcomes.get(f"bandwidth/{network}/{state}/{what}") for state in STATES]
            if any(found):
                rows.append(f"| {name} | {' | '.join(map(cell, found))} |")
        if rows:
            lines += [f"| {TITLES[network]} | quiet | with other programs running |"]
            lines += ["|---|---|---|", *rows, ""]
    return "\n".join(lines)


def cell(outcome):
    """An outcome: value, ratio, runs that failed, losses."""
    if outcome is None:
        return ""
    parts = []
    if outcome.values and outcome.unit:
        parts.append(f"{number(outcome.value)} {outcome.unit}")
    if outcome.yardsticks:
        parts[-1] += f" against {number(median(outcome.yardsticks))}"
    if outcome.ratios:
        low, high = min(outcome.ratios), max(outcome.ratios)
        parts.append(f"ratio {outcome.ratio:.3g} ({low:.3g} to {high:.3g})")
    if outcome.failed:
        parts.append(f"{outcome.failed} of {outcome.runs} failed")
    if outcome.unmeasured:
        parts.append(f"{outcome.unmeasured} of {outcome.runs} had no clock")
    if outcome.datagrams:
        parts.append(losses(outcome))
    return ", ".join(parts)


def losses(outcome):
    """Lost datagrams. Most packets between processes of one host are in no socket, so that a share
    alone would say little there.
    """
    if outcome.lost == 0:
        return "none lost" if outcome.datagrams else ""
    return f"{outcome.lost} lost ({outcome.loss:.2%})"


def number(value):
    return f"{value:.{0 if value >= 100 else 2}f}"


def bar_table(rows, short):
    """The bars; `rows` are (case, outcome)."""
    lines = ["| what | ratio | bar | aim | reached | lost |", "|---|---|---|---|---|---|"]
    for case, outcome in rows:
        ratio, bar, aim = "", "none fails", ""
        if case.bar:
            ratio = case.bar.shown(outcome.ratio) if outcome.ratios else ""
            bar, aim = case.bar.describe(short), case.bar.shown(case.bar.aim)
        missed = problems(case, outcome, short)
        reached = f"no: {missed[0]}" if missed else "yes"
        lines.append(f"| {case.name} | {ratio} | {bar} | {aim} | {reached} | {losses(outcome)} |")
    return "\n".join([*lines, ""])


def problems(case, outcome, short):
    """What a case has missed."""
    if outcome.failed:
        return [f"{outcome.failed} of {outcome.runs} runs failed"]
    if outcome.yardstick_failed:
        return ["its yardstick failed"]
    if outcome.runs == 0:
        return ["nothing was measured"]
    if case.bar and not outcome.ratios:
        return ["there is nothing to compare"]
    if case.bar and not case.bar.reached(outcome.ratio, short):
        shown = case.bar.shown(outcome.ratio)
        return [f"{shown}, wanted {case.bar.describe(short)}"]
    return []
