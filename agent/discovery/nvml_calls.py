"""Every call of NVIDIA's library goes through here: what a card, a driver or an old pynvml does not have is none."""

import ctypes
import math
from collections.abc import Callable, Iterator
from types import ModuleType

from agent.discovery.gpu import ReaderFailed
from agent.discovery.words import broken

MOST = 2**62
"""A larger count is one of the library's marks for "no value"."""
_OTHER_FAILURES = (AttributeError, TypeError, ValueError, OverflowError, LookupError, ctypes.ArgumentError)


class Nvml:
    """The library, asked carefully. `library` is pynvml or what stands in for it."""

    def __init__(self, library: ModuleType) -> None:
        self._library = library
        # A struct of another shape, a name that is no text: as good as an error of the driver's own.
        self._failures: tuple[type[Exception], ...] = (library.NVMLError, *_OTHER_FAILURES)

    def need(self, name: str, *args: object) -> object:
        """Result of a call without which nothing can be told; raises ReaderFailed."""
        try:
            return self._call(name)(*args)
        except self._failures as error:
            raise ReaderFailed(str(error) or type(error).__name__) from error

    def get(self, name: str, *args: object) -> object | None:
        """Result of a call, none when it has none."""
        try:
            return self._call(name)(*args)
        except self._failures:
            return None

    def trouble(self, name: str, *args: object) -> str:
        """The library's words where a call fails since the card does not answer; empty where it merely has nothing."""
        try:
            self._call(name)(*args)
        except self._failures as error:
            return str(error) if broken(str(error)) else ""
        return ""

    def number(self, name: str, *args: object) -> float | None:
        """A call's figure, when it is one that can be."""
        return number(self.get(name, *args))

    def count(self, name: str, *args: object) -> int | None:
        """A call's count."""
        return count(self.get(name, *args))

    def text(self, name: str, *args: object) -> str:
        """A call's text; empty when it has none."""
        return text(self.get(name, *args))

    def field_value(self, handle: object, field: int) -> float | None:
        """One of the library's "field values"."""
        values = self.get("nvmlDeviceGetFieldValues", handle, [field])
        first = next(iter(_items(values)), None)
        if first is None or count(getattr(first, "nvmlReturn", None)) != 0:
            return None
        kind = count(getattr(first, "valueType", None))
        member = _MEMBERS.get(-1 if kind is None else kind)
        return None if member is None else number(getattr(getattr(first, "value", None), member, None))

    def _call(self, name: str) -> Callable[..., object]:
        call: Callable[..., object] = getattr(self._library, name)
        return call


_MEMBERS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal"}
"""nvmlValueType_t → member of the union that holds it."""


def number(value: object) -> float | None:
    """The value, when it is a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def count(value: object) -> int | None:
    """The value, when it is a whole number from 0 to MOST."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST else None


def text(value: object) -> str:
    """The value as text."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str) else ""


def _items(values: object) -> Iterator[object]:
    try:
        yield from values  # type: ignore[misc]
    except TypeError:
        return
