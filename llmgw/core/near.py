"""Names that somebody may have meant: a slip of the hand is answered with what would have worked."""

import difflib
from collections.abc import Iterable, Sequence
from itertools import islice

MOST_NAMED = 3
"""Names a refusal gives."""
MOST_LOOKED_AT = 2_000
"""Names compared: an answer to a typo must not take longer than one to a request."""
_ALIKE = 0.6
"""Share of letters in common from which on a name may have been meant."""


def near(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """The known names most like `name`, the likeliest first; another case of letters is the likeliest of all."""
    folded: dict[str, list[str]] = {}
    for other in islice(known, MOST_LOOKED_AT):
        folded.setdefault(other.casefold(), []).append(other)
    alike = difflib.get_close_matches(name.casefold(), folded, n=MOST_NAMED, cutoff=_ALIKE)
    return tuple(other for key in alike for other in folded[key])[:MOST_NAMED]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'qwen' or 'qwen-7b'?` to end a refusal with; nothing where no name is alike."""
    return or_those(near(name, known))


def or_those(names: Sequence[str]) -> str:
    """The same for names that were found already."""
    found = [repr(name) for name in names]
    if not found:
        return ""
    listed = found[0] if len(found) == 1 else f"{', '.join(found[:-1])} or {found[-1]}"
    return f"; did you mean {listed}?"
