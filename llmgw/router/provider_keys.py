"""A provider's keys: read from the operator's file, they take turns, and one that was refused rests.

A key is nowhere but in this process's memory and on the wire: no message, log line or `repr` shows one. A file that
cannot be read any more, or holds anything but keys, leaves those in force that were read before.
"""

import logging
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from llmgw.core.errors import InvalidInput
from llmgw.core.external import MAX_KEYS_FILE_BYTES, parse_keys

LOOK_S = 1.0
"""How often a request makes the router look whether the file changed."""
REFUSED_REST_S = 60.0
"""A key that the provider does not know, or does not serve for want of money (401, 402, 403), rests this long."""
LIMITED_REST_S = 5.0
"""A key that is over its limits (429) rests this long when the provider does not say for how long."""
LONGEST_REST_S = 3600.0
"""No rest is longer, whatever the provider says."""
UNPAID = 402
"""Of a provider's answers the one about the money of the gateway's account there: all of it, or too little for this."""
REFUSED = frozenset({401, UNPAID, 403})
"""Answers about the key: it is wrong, has no money left, or may not do this."""
FORBIDDEN = 403
"""Of these the one that may be about the request: some providers answer it to what they find indecent."""
LIMITED = 429

log = logging.getLogger(__name__)
_Mark = tuple[int, int, int, int]


class NoKeys(OSError):
    """The file cannot be used; the message says why, without a word of what it holds."""


def read_keys(path: str, private: Sequence[Path] = ()) -> tuple[str, ...]:
    """The keys in the file at `path`; raises NoKeys. Files in, or that are, one of `private` are never read."""
    return _read(path, private)[0]


def read_operators_file(path: str, most_bytes: int, private: Sequence[Path]) -> tuple[bytes, os.stat_result]:
    """The first bytes of a file with secrets that an operator wrote, one more than `most_bytes` at most.

    Raises NoKeys; files in, or that are, one of `private` are never read.
    """
    real = Path(os.path.realpath(path))
    if any(real.is_relative_to(os.path.realpath(place)) for place in private):
        raise NoKeys("it belongs to the server itself: keep providers' keys in a file of their own elsewhere")
    try:
        # Without waiting: a FIFO would never open. Whatever took the file's place meanwhile is not followed.
        descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            data = os.read(descriptor, most_bytes + 1) if stat.S_ISREG(status.st_mode) else None
        finally:
            os.close(descriptor)
    except OSError as error:
        raise NoKeys(f"it cannot be read: {error.strerror or 'the system gives no reason'}") from None
    if data is None:
        raise NoKeys("it is no regular file")
    return data, status


def _read(path: str, private: Sequence[Path]) -> tuple[tuple[str, ...], _Mark]:
    data, status = read_operators_file(path, MAX_KEYS_FILE_BYTES, private)
    try:
        return parse_keys(data), _mark(status)
    except InvalidInput as error:
        raise NoKeys(error.message) from None


def _mark(status: os.stat_result) -> _Mark:
    return (status.st_mtime_ns, status.st_size, status.st_ino, status.st_ctime_ns)


@dataclass(slots=True)
class _Key:
    value: str = field(repr=False)
    rests_until: float = 0.0
    limited: bool = False
    """Whether it rests because of its limits."""
    worked_at: float = float("-inf")
    """When the provider last took a request with it."""


class KeyRing:
    """The keys of one endpoint. Times are monotonic seconds."""

    def __init__(self, path: str, private: Sequence[Path] = ()) -> None:
        """Keys from the file at `path`; an empty path is an endpoint that asks for none."""
        self._path = path
        self._private = private
        self._keys: list[_Key] = []
        self._turn = 0
        self._looked_at = float("-inf")
        self._keyless = _Key("")
        self._mark: _Mark | None = None
        self._trouble = ""

    def take(self, now: float) -> str:
        """The key whose turn it is; empty when the endpoint asks for none.

        Raises NoKeys when no key could be read, and Resting when every key rests.
        """
        if not self._path:
            return ""
        self._look(now)
        if not self._keys:
            raise NoKeys(f"its keys file {self._path}: {self._trouble}")
        for _ in self._keys:
            self._turn = (self._turn + 1) % len(self._keys)
            key = self._keys[self._turn]
            if key.rests_until <= now:
                return key.value
        first = min(self._keys, key=lambda key: key.rests_until)
        raise Resting(first.rests_until - now, limited=any(key.limited for key in self._keys))

    def worked(self, value: str, now: float) -> None:
        """The provider answered a request with this key as asked."""
        for key in self._keys or (self._keyless,):
            if key.value == value:
                key.worked_at = now

    def refused(self, value: str, status: int, retry_after_s: float | None, now: float) -> float:
        """The provider answered `status` (401, 402, 403 or 429) to this key, which rests from now on.

        A key that worked a moment ago is not what a 402 or 403 is about: it does not rest, or one client's requests
        could keep all others from the model. Returns seconds until some key may be used: 0 while one may.
        """
        keys = self._keys or [self._keyless]
        worked_at = max((key.worked_at for key in keys if key.value == value), default=float("-inf"))
        if status in (FORBIDDEN, UNPAID) and now - worked_at < REFUSED_REST_S:
            return 0.0
        if status == LIMITED:
            rest_s = LIMITED_REST_S if retry_after_s is None else max(1.0, min(retry_after_s, LONGEST_REST_S))
        else:
            rest_s = REFUSED_REST_S
        for number, key in enumerate(self._keys, 1):
            if key.value == value:
                key.rests_until, key.limited = now + rest_s, status == LIMITED
                log.warning("key %d of %s was refused (%d) and rests %.0f s", number, self._path, status, rest_s)
        if not self._keys:  # an endpoint that asks for none rests itself
            return rest_s
        return max(0.0, min(key.rests_until for key in self._keys) - now)

    def rests(self, now: float) -> bool:
        """Whether any key rests, so that forgetting them would show one too early."""
        return any(key.rests_until > now for key in self._keys)

    def mended(self, now: float) -> bool:
        """Whether there was no key to show and the file was changed since, so that there is one."""
        if not self._path or any(key.rests_until <= now for key in self._keys):
            return False
        before = self._mark
        self._look(now)
        return self._mark != before and bool(self._keys)

    def has_other(self, value: str, now: float) -> bool:
        """Whether another key than this one may be used."""
        return any(key.value != value and key.rests_until <= now for key in self._keys)

    def _look(self, now: float) -> None:
        """Read the file if it changed."""
        if now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        try:
            if self._mark is not None and _mark(os.stat(self._path)) == self._mark:
                return
            values, self._mark = _read(self._path, self._private)
        except NoKeys as error:
            self._complain(str(error))
        except OSError as error:
            self._complain(f"it cannot be read: {error.strerror}")
        else:
            # Whoever changed the file may have mended what the keys were refused for.
            self._keys = [_Key(value) for value in values]
            self._turn = 0
            self._trouble = ""
            log.info("%d keys read from %s", len(values), self._path)

    def _complain(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            kept = f"; the {len(self._keys)} read before stay" if self._keys else ""
            log.warning("keys file %s: %s%s", self._path, trouble, kept)


class Resting(Exception):
    """Every key rests."""

    def __init__(self, retry_after_s: float, *, limited: bool) -> None:
        super().__init__(f"every key of the provider rests for {retry_after_s:.0f} s")
        self.retry_after_s = retry_after_s
        self.limited = limited
        """Whether one of them does so for its limits: waiting helps."""
