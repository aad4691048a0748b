"""Chains of fallbacks: which models answer, in which order, while one cannot. Whatever is stored, a chain ends.

A model's own list comes first, in its order, and then what each of those falls back to itself. A name that is not in
the catalog any more is passed over, so that a removed model leaves the others as they were.
"""

from collections.abc import Mapping, Sequence

from llmgw.core.errors import InvalidInput

MAX_FALLBACKS = 8
"""Names in one model's list."""
FIELD = "fallbacks"


def chain_of(name: str, declared: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Who answers for `name`, in order: each once, never itself, and only names that `declared` has a list for."""
    found: dict[str, None] = {}
    waiting = list(declared.get(name, ()))
    while waiting:
        later: list[str] = []
        for other in waiting:
            if other != name and other in declared and other not in found:
                found[other] = None
                later += declared[other]
        waiting = later
    return tuple(found)


def check_list(name: str, fallbacks: Sequence[str]) -> None:
    """Raise InvalidInput for what no list may hold, whatever is in the catalog."""
    if len(fallbacks) > MAX_FALLBACKS:
        raise InvalidInput(f"{len(fallbacks)} models are more than {MAX_FALLBACKS}", field=FIELD)
    for i, other in enumerate(fallbacks):
        if other == name:
            raise InvalidInput(f"{name} cannot answer for itself", field=f"{FIELD}[{i}]")
        if other in fallbacks[:i]:
            raise InvalidInput(f"{other[:140]!r} is listed twice", field=f"{FIELD}[{i}]")


def check_chain(
    name: str, fallbacks: Sequence[str], declared: Mapping[str, Sequence[str]], aliases: Mapping[str, str]
) -> None:
    """Raise InvalidInput for a list that cannot stand beside the `declared` ones of the other models.

    `aliases` are the catalog's, with the model each belongs to. The message names the way a circle goes.
    """
    for i, other in enumerate(fallbacks):
        if other in declared:
            continue
        if (owner := aliases.get(other)) is not None:
            what = f"{other[:140]!r} is an alias: write the model's own name, {owner}"
        else:
            have = ", ".join(sorted(n for n in declared if n != name)[:8]) or "none yet"
            what = f"there is no model {other[:140]!r} to fall back to; models: {have}"
        raise InvalidInput(what, field=f"{FIELD}[{i}]")
    for i, other in enumerate(fallbacks):
        way = _way(other, name, declared)
        if way is not None:
            circle = " → ".join((name, *way))
            raise InvalidInput(
                f"goes in a circle: {circle}; take {other} out here, or {name} out of the list of {way[-2]}",
                field=f"{FIELD}[{i}]",
            )


def relying_on(name: str, declared: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Models whose own list names `name`."""
    return tuple(sorted(other for other, names in declared.items() if name in names))


def _way(start: str, end: str, declared: Mapping[str, Sequence[str]]) -> tuple[str, ...] | None:
    """The shortest way down the lists from `start` to `end`, both in it; none when there is none."""
    before: dict[str, str] = {start: ""}
    waiting = [start]
    while waiting:
        later: list[str] = []
        for name in waiting:
            if name == end:
                return _back(name, before)
            for other in declared.get(name, ()):
                if other not in before:
                    before[other] = name
                    later.append(other)
        waiting = later
    return None


def _back(name: str, before: Mapping[str, str]) -> tuple[str, ...]:
    way = [name]
    while before[way[-1]]:
        way.append(before[way[-1]])
    return tuple(reversed(way))
