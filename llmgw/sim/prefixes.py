"""The simulated engine's prefix cache: which beginnings of prompts it has computed lately, and need not compute again.

As in a real engine, a prompt is held in blocks, a block is reused only together with all before it, and the blocks that
were used the longest ago make room for new ones.
"""

from collections import OrderedDict

BLOCK = 64
"""Bytes of a block: about the 16 tokens of vLLM's."""


class PrefixCache:
    """Blocks of prompts, up to a number of bytes."""

    def __init__(self, capacity_kb: int) -> None:
        self._most = capacity_kb * 1024 // BLOCK
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def read(self, prompt: bytes) -> int:
        """Compute a prompt; how many of its first bytes were held before. All its whole blocks are held afterwards."""
        if not self._most:
            return 0
        blocks, held, mark = self._blocks, 0, 0
        missed = False
        for at in range(BLOCK, len(prompt) + 1, BLOCK):
            mark = hash((mark, prompt[at - BLOCK : at]))
            missed = missed or mark not in blocks
            if not missed:
                held = at
            blocks[mark] = None
            blocks.move_to_end(mark)
        while len(blocks) > self._most:
            blocks.popitem(last=False)
        return held
