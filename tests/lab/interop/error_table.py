"""The error matrix as it was observed: what each side said, beside what rxe says to rxe."""

from conversation import DIRECTIONS

COLUMNS = ["row", "directions", "A, who asks", "B, who answers", "states", "NAK"]


def print_table(kernel, observed):
    """`observed`: (group, row's name, direction) -> `Observed`."""
    lines = []
    for name in dict.fromkeys(name for group, name, _ in observed if group == "errors"):
        # The directions in which the same came of it share a line. A NAK from rxe to rxe does not leave the guest.
        alike = {}
        for direction in DIRECTIONS:
            seen = observed.get(("errors", name, direction))
            if seen:
                asked = seen.a if not seen.post else f"{seen.a} ({seen.post})".strip()
                alike.setdefault((shorten(asked), shorten(seen.b), seen.states), []).append(
                    (direction, seen.nak)
                )
        for (a, b, states), same in alike.items():
            nak = " ".join(dict.fromkeys(nak for _, nak in same if nak))
            who = (
                "all"
                if len(same) == len(DIRECTIONS)
                else " ".join(direction for direction, _ in same)
            )
            lines.append([name, who, a or "-", b or "-", states, nak])
            name = ""
    if not lines:
        return
    widths = [max(len(line[n]) for line in [COLUMNS, *lines]) for n in range(len(COLUMNS))]
    print(f"\nerrors with rxe {kernel}")
    for line in [COLUMNS, ["-" * width for width in widths], *lines]:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip())
    print(flush=True)


def shorten(words):
    """A word that comes many times in a row, once with its number."""
    parts = []
    for word in words.split():
        if parts and parts[-1][0] == word:
            parts[-1][1] += 1
        else:
            parts.append([word, 1])
    return " ".join(
        " ".join([word] * count) if count < 4 else f"{word} (x{count})" for word, count in parts
    )
