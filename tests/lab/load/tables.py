"""The tables of a run, in Markdown."""

from lab.load.bandwidth import PLANS, WIRES, YARDSTICK


def bandwidth_table(done):
    """Bandwidth on the quiet machine, and beside other programs; `done` is {name: outcome}."""
    lines = []
    for mtu in WIRES:
        groups = [f"bandwidth/mtu{mtu}/{state}" for state in ("quiet", "busy")]
        rows = [("yardstick", YARDSTICK.name), *((what, plan.name) for what, plan in PLANS.items())]
        shown = [(title, [done.get(f"{group}/{what}") for group in groups]) for what, title in rows]
        shown = [(title, outcomes) for title, outcomes in shown if any(outcomes)]
        if shown:
            lines += [
                "",
                f"| path MTU {mtu} | quiet | with other programs running |",
                "|---|---|---|",
            ]
            lines += [f"| {title} | {cell(a)} | {cell(b)} |" for title, (a, b) in shown]
    return "\n".join(lines)


def cell(outcome):
    if outcome is None:
        return ""
    parts = []
    if outcome.values:
        parts.append(f"{outcome.value:.0f} MiB/s")
    if outcome.ratios:
        parts.append(
            f"{outcome.ratio:.2f} ({min(outcome.ratios):.2f} to {max(outcome.ratios):.2f})"
        )
    if outcome.failed:
        parts.append(f"{outcome.failed} of {outcome.runs} failed")
    parts.append(f"lost {outcome.loss:.2%}")
    return ", ".join(parts)


def bar_table(rows, short):
    """The bars: (case, outcome) of each case that has one."""
    lines = ["", "| what | ratio | bar | aim | reached | lost |", "|---|---|---|---|---|---|"]
    for case, outcome in rows:
        if case.bar:
            ratio = f"{outcome.ratio:.2f}" if outcome.ratios else "failed"
            good = not problems(case, outcome, short)
            lines.append(
                f"| {case.name} | {ratio} | {case.bar.describe(short)} | {case.bar.aim:g} "
                f"| {'yes' if good else 'no'} | {outcome.loss:.2%} |"
            )
    return "\n".join(lines)


def problems(case, outcome, short):
    """What a case has missed."""
    found = []
    if outcome.failed:
        found.append(f"{outcome.failed} of {outcome.runs} runs failed")
    elif case.bar and not outcome.ratios:
        found.append("the yardstick failed")
    elif case.bar and not case.bar.reached(outcome.ratio, short):
        found.append(f"{outcome.ratio:.2f}, wanted {case.bar.describe(short)}")
    return found
