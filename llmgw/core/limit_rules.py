"""What limits may be, in figures and in words. A `Limits` that left `check_limits` can be counted in 64 bits."""

from llmgw.core.catalog import check_name
from llmgw.core.errors import InvalidInput
from llmgw.core.limits import Limits
from llmgw.core.money import NONE

MAX_RPM = 10**9
MAX_TPM = 10**12
MAX_PARALLEL = 10**6
"""Bounds far above what a cluster can do: a larger figure is a slip of the hand."""
_BOUNDS = {"rpm": MAX_RPM, "tpm": MAX_TPM, "parallel": MAX_PARALLEL}
_WORDS = {"rpm": "rpm", "tpm": "tpm", "parallel": "at once"}


def check_limits(limits: Limits, *, field: str = "limits") -> None:
    """Raise InvalidInput for the first figure that is out of its bounds."""
    for name, bound in _BOUNDS.items():
        value: int | None = getattr(limits, name)
        if value is not None and not 0 <= value <= bound:
            raise InvalidInput(
                f"{value} is outside 0 to {bound}; {NONE} (null in JSON) is unlimited", field=f"{field}.{name}"
            )


def check_scope_name(name: str, *, field: str = "name") -> None:
    """Raise InvalidInput unless a team or tenant may be called `name`: a catalog name, and not the word for none."""
    check_name(name, field=field)
    if name.lower() == NONE:
        raise InvalidInput(f"{name!r} means that there is none: choose another name", field=field)


def limits_text(limits: Limits) -> str:
    """`60 rpm · 100000 tpm · 4 at once`, or `no limits`."""
    given = [f"{value} {words}" for name, words in _WORDS.items() if (value := getattr(limits, name)) is not None]
    return " · ".join(given) or "no limits"
