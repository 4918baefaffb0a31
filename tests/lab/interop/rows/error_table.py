"""Table of errors as observed: what each side reports, beside what rxe reports to rxe."""

from lab.interop.rows.row import DIRECTIONS

COLUMNS = ["row", "directions", "A, the requester", "B, the responder", "states", "NAK"]


def print_table(kernel, observed):
    """`observed`: (group, row's name, direction) -> `Observed`."""
    names = dict.fromkeys(name for group, name, _ in observed if group == "errors")
    lines = [line for name in names for line in row_lines(name, observed)]
    if not lines:
        return
    widths = [max(len(line[n]) for line in [COLUMNS, *lines]) for n in range(len(COLUMNS))]
    print(f"\nerrors with rxe {kernel}")
    for line in [COLUMNS, ["-" * width for width in widths], *lines]:
        cells = [text.ljust(width) for text, width in zip(line, widths, strict=True)]
        print("  ".join(cells).rstrip())
    print(flush=True)


def row_lines(name, observed):
    """Lines of a row. Directions with the same outcome share one. A NAK from rxe to rxe does not
    leave the guest.
    """
    alike = {}
    for direction in DIRECTIONS:
        seen = observed.get(("errors", name, direction))
        if seen:
            asked = seen.a if not seen.post else f"{seen.a} ({seen.post})".strip()
            outcome = shorten(asked), shorten(seen.b), seen.states
            alike.setdefault(outcome, []).append((direction, seen.nak))
    for (a, b, states), same in alike.items():
        nak = " ".join(dict.fromkeys(nak for _, nak in same if nak))
        everywhere = len(same) == len(DIRECTIONS)
        directions = "all" if everywhere else " ".join(direction for direction, _ in same)
        yield [name, directions, a or "-", b or "-", states, nak]
        name = ""


def shorten(words):
    """A word that is there many times in a row, once with its number."""
    parts = []
    for word in words.split():
        if parts and parts[-1][0] == word:
            parts[-1][1] += 1
        else:
            parts.append([word, 1])
    return " ".join(
        " ".join([word] * count) if count < 4 else f"{word} (x{count})" for word, count in parts
    )
