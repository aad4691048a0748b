"""A router's place in the shared counters, held by pid, start time and boot: what a dead router had open is taken back.

A slot is read without a lock and changed under the table's. Its pid is written last when it is taken and cleared last
when it is reaped, so a process killed while reaping leaves the work to the next.
"""

import functools
import os
import threading
from pathlib import Path

from llmgw.core.processes import boot_id, start_time
from llmgw.router.counter_file import H_SLOTS_HIGH, SLOT_WORDS, SLOTS, SLOTS_AT
from llmgw.router.counters import Counters

_reaping = threading.Lock()
"""Locks of a file are the process's, not the thread's: two threads of a supervisor would not exclude each other."""


def claim(counters: Counters) -> bool:
    """Take a slot for this process, after reaping the dead; false when there is none."""
    if not counters.lock_table():
        return False
    try:
        _reap(counters)
        words = counters.words
        for slot in range(SLOTS):
            at = SLOTS_AT + slot * SLOT_WORDS
            if words[at]:
                continue
            counters.clear_slot(slot)
            words[at + 1], words[at + 2] = start_time(os.getpid()) or 0, boot_number()
            words[H_SLOTS_HIGH] = max(words[H_SLOTS_HIGH], slot + 1)
            words[at] = os.getpid()
            counters.slot = slot
            return True
        return False
    finally:
        counters.unlock_table()


def reap(counters: Counters) -> int:
    """Free the slots of dead processes and what they had open; how many. Cheap when nobody died."""
    if not any(_dead(counters, slot) for slot in range(counters.words[H_SLOTS_HIGH])) or not counters.lock_table():
        return 0
    try:
        return _reap(counters)
    finally:
        counters.unlock_table()


def reap_file(path: Path) -> int:
    """The same for the supervisor, which has no slot; 0 when there is no counter file. Raises OSError."""
    with _reaping:
        try:
            counters = Counters.open(path, create=False)
        except FileNotFoundError:
            return 0
        try:
            return reap(counters)
        finally:
            counters.close()


def give_up(counters: Counters) -> None:
    """This process ends: free its slot."""
    if counters.shared and counters.lock_table():
        try:
            counters.clear_slot(counters.slot)
            counters.words[SLOTS_AT + counters.slot * SLOT_WORDS] = 0
        finally:
            counters.unlock_table()


def _reap(counters: Counters) -> int:
    reaped = 0
    for slot in range(counters.words[H_SLOTS_HIGH]):
        if _dead(counters, slot):
            counters.clear_slot(slot)
            counters.words[SLOTS_AT + slot * SLOT_WORDS] = 0
            reaped += 1
    return reaped


def _dead(counters: Counters, slot: int) -> bool:
    """Whether the slot is held by a process that is no more."""
    at = SLOTS_AT + slot * SLOT_WORDS
    pid, started, boot = counters.words[at : at + 3]
    if not pid:
        return False
    return boot != boot_number() or pid < 0 or start_time(pid) != started


@functools.cache
def boot_number() -> int:
    """This boot of the machine, as it stands in a slot."""
    return int(boot_id().replace("-", "")[:15], 16)
