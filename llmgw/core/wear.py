"""What wears out on a card: counts that a driver keeps, and what an operator should know of them, in words.

A count is none where the card does not keep it. What only a program did wrong is counted and is no wear.
"""

import msgspec

REPLAYS_A_PROBLEM = 10_000
"""PCIe replays since the driver was loaded; a few come with every link, thousands with a bad riser, slot or cable."""
PAGES_A_PROBLEM = 60
"""Retired pages past which NVIDIA takes boards back; 64 is all a board can retire."""

XID_WORDS = {
    13: "a program's kernel failed (graphics engine exception)",
    31: "a program touched memory that is not its own",
    43: "a program's channel was reset",
    45: "a program's work was cancelled",
    48: "a memory error that could not be corrected",
    61: "an internal controller stopped",
    62: "an internal controller stopped",
    63: "a memory row or page is being replaced by a spare",
    64: "a bad memory row or page could not be replaced",
    68: "the video processor failed",
    69: "a program's kernel failed (class error)",
    74: "an NVLink error",
    79: "the card fell off the bus",
    92: "many memory errors, all corrected",
    94: "a memory error that could not be corrected, kept to one program",
    95: "a memory error that could not be corrected, and reached further",
    109: "a program's context switch took too long",
    119: "the card's system processor did not answer",
    120: "the card's system processor failed",
    121: "an error on the chip-to-chip link",
    140: "a memory error that could not be recovered",
    143: "the card could not be started",
    149: "an NVLink error that needs service",
}
"""NVIDIA's error numbers, in short words; the list at docs.nvidia.com/deploy/xid-errors has them all."""
PROGRAM_XIDS = frozenset({13, 31, 43, 45, 68, 69, 94, 109})
"""What programs cause, or what touches only them; a card is none the worse for it."""
_ADVICE = {79: "reseat or replace it", 64: "replace it", 95: "restart the node", 140: "restart the node"}


class CardWear(msgspec.Struct, frozen=True, kw_only=True):
    """A card's counts; none is "this card does not keep it"."""

    pcie_replays: int | None = None
    """Since the driver was loaded."""
    retired_pages_sbe: int | None = None
    """Pages retired for single-bit errors (cards before Ampere), ever."""
    retired_pages_dbe: int | None = None
    """Pages retired for double-bit errors, ever."""
    retirement_pending: bool | None = None
    """A page is retired at the next restart."""
    remapped_rows: int | None = None
    """Memory rows replaced by spares (Ampere and later), ever."""
    remap_pending: bool | None = None
    """A row is replaced at the next reset."""
    remap_failed: bool | None = None
    """A row could not be replaced: the spares are used up."""
    nvlink_replay_errors: int | None = None
    """Packets sent again, all links, since the driver was loaded."""
    nvlink_recovery_errors: int | None = None
    """Times a link had to be trained anew, all links, since the driver was loaded."""
    xid_count: int | None = None
    """Errors the driver logged, since the machine started or, where the kernel's log is closed, since the agent did."""
    xid_last: int | None = None
    """NVIDIA's number of the last one."""
    xid_at: float | None = None
    """Unix seconds of the last one, or of when it was noticed."""

    @property
    def xid_text(self) -> str:
        """What the last error means; empty when there was none."""
        return "" if self.xid_last is None else xid_words(self.xid_last)

    @property
    def retired_pages(self) -> int | None:
        """Pages retired for either cause."""
        counts = [count for count in (self.retired_pages_sbe, self.retired_pages_dbe) if count is not None]
        return sum(counts) if counts else None

    def problems(self) -> tuple[str, ...]:
        """What an operator should do something about, as sentences, the worst first; they hold no moving figures."""
        found = []
        if self.xid_last is not None and self.xid_last not in PROGRAM_XIDS:
            advice = _ADVICE.get(self.xid_last)
            found.append(f"Xid {self.xid_last}: {self.xid_text}{f'; {advice}' if advice else ''}.")
        if self.remap_failed:
            found.append("A bad memory row could not be replaced, the spares are used up: replace the card.")
        if (self.retired_pages or 0) >= PAGES_A_PROBLEM:
            found.append(f"{PAGES_A_PROBLEM} or more memory pages are retired: replace the card.")
        if self.remap_pending:
            found.append("A bad memory row waits to be replaced by a spare: reset the card or restart the node.")
        if self.retirement_pending:
            found.append("A bad memory page waits to be retired: restart the node.")
        if self.nvlink_recovery_errors:
            found.append("NVLink had to be trained anew: look at cables, bridge and switches.")
        if (self.pcie_replays or 0) >= REPLAYS_A_PROBLEM:
            found.append("Thousands of PCIe packets were sent again: look at slot, riser and cables.")
        return tuple(found)


def xid_words(number: int) -> str:
    """What an error number means, as far as it is known here."""
    return XID_WORDS.get(number, "an error without a description here")
