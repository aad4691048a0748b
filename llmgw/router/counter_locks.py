"""Locks on bytes of the counter file. Taking one never waits for a process that does not run.

They are POSIX record locks: the kernel drops a dead process's, and they belong to the process, so nothing of it may
open the file a second time. Taken without blocking and tried again, they know no deadlock and no signal.
"""

import errno
import fcntl
import logging
import os
import time

PATIENCE_S = 0.05
"""How long a lock is waited for. A section takes microseconds: one held longer belongs to a process that is stopped."""
SPINS = 20
"""Tries without a pause: the other section is over within a few."""
PAUSE_S = 0.0002
COMPLAIN_EVERY_S = 60.0
"""Trouble with the counters is said this often at most: it comes with every request."""

_EXCLUSIVE = fcntl.LOCK_EX | fcntl.LOCK_NB
_BUSY = (errno.EAGAIN, errno.EACCES)
_TABLE = 0
"""Byte of the lock under which rows and slots are given out. A row's locks are its first two bytes."""

_log = logging.getLogger(__name__)
_complained_at = float("-inf")


def complain(what: str) -> None:
    """Say that something is wrong with the counters."""
    global _complained_at
    if time.monotonic() - _complained_at >= COMPLAIN_EVERY_S:
        _complained_at = time.monotonic()
        _log.error("%s", what)


class Locks:
    """The locks of one process on one file."""

    def __init__(self, descriptor: int, rows_at: int) -> None:
        """Of the file open as `descriptor`, this process's only one; rows begin at byte `rows_at`."""
        self.descriptor = descriptor
        self._rows_at = rows_at
        self._stuck: set[int] = set()
        """Rows whose holder was waited for in vain and not seen to move since."""

    def close(self) -> None:
        """Close the file. Twice is harmless."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def lock(self, bases: tuple[int, ...]) -> list[int]:
        """Lock the rows that begin at these bytes, which ascend. Returns those whose holder had to be gone past.

        Those are locked by their second byte: whoever goes past the same holder is still kept out.
        """
        passed: list[int] = []
        descriptor = self.descriptor
        for base in bases:
            try:
                fcntl.lockf(descriptor, _EXCLUSIVE, 1, base)
            except OSError as error:
                if self._go_past(base, error):
                    passed.append(base)
            else:
                if self._stuck:
                    self._stuck.discard(base)
        return passed

    def unlock(self) -> None:
        """Unlock every row."""
        fcntl.lockf(self.descriptor, fcntl.LOCK_UN, 0, self._rows_at)

    def lock_table(self) -> bool:
        """Lock the table; false when somebody keeps it. Raises OSError where no lock works."""
        return self._try(_TABLE)

    def unlock_table(self) -> None:
        """Unlock it."""
        fcntl.lockf(self.descriptor, fcntl.LOCK_UN, 1, _TABLE)

    def _go_past(self, base: int, error: OSError) -> bool:
        """The row could not be locked at once: wait for it, or take its second lock and return true."""
        if error.errno not in _BUSY:
            complain(f"a row of the shared counters cannot be locked: {error}")
            return False
        try:
            if base not in self._stuck:
                if self._try(base):
                    return False
                self._stuck.add(base)
                complain("a process that does not run holds a row of the shared counters; it is gone past")
            if not self._try(base + 1):
                complain("a row of the shared counters is counted in without a lock")
        except OSError as trouble:
            complain(f"a row of the shared counters cannot be locked: {trouble}")
        return True

    def _try(self, at: int) -> bool:
        """Whether the lock on this byte was had in time. Raises OSError where no lock works."""
        tries, until = 0, 0.0
        while True:
            try:
                fcntl.lockf(self.descriptor, _EXCLUSIVE, 1, at)
                return True
            except OSError as error:
                if error.errno not in _BUSY:
                    raise
            tries += 1
            if tries > SPINS:
                until = until or time.monotonic() + PATIENCE_S
                if time.monotonic() >= until:
                    return False
                time.sleep(PAUSE_S)
