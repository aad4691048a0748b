"""Models that answer in the place of others, in words with figures."""

from collections.abc import Mapping

from console.figures import plural

MOST = 3
"""Names in one sentence."""


def counted(counts: Mapping[str, int]) -> str:
    """`b: 12, c: 1 in the last minute`, the most first; empty where there are none."""
    if not counts:
        return ""
    names = _ordered(counts)
    more = f" and {len(names) - MOST:,} more" if len(names) > MOST else ""
    told = ", ".join(f"{name}: {counts[name]:,}" for name in names[:MOST])
    return f"{told}{more} in the last minute"


def attention(fell_back: Mapping[str, int]) -> str:
    """`falls back: b answered 12 requests for it in the last minute`; empty while it answers itself."""
    if not fell_back:
        return ""
    total = sum(fell_back.values())
    who = ", ".join(_ordered(fell_back)[:MOST])
    return f"falls back: {who} answered {plural(total, 'request')} for it in the last minute"


def _ordered(counts: Mapping[str, int]) -> list[str]:
    """The most first."""
    return sorted(counts, key=lambda name: (-counts[name], name))
