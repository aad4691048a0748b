"""What an engine's own help says of the flags that llmgw gives it. Not to be installed is no fault."""

import msgspec

from llmgw.core.units import plural


class EngineCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One engine on one node, asked for its help."""

    engine: str
    version: str = ""
    installed: bool = True
    """Whether it is there to be asked."""
    written: int = 0
    """Flags of the command line that llmgw writes."""
    allowed: int = 0
    """Flags that a profile may add."""
    unknown_written: tuple[str, ...] = ()
    """Of the former, those it does not know: no replica can start."""
    unknown_allowed: tuple[str, ...] = ()
    """Of the latter: a profile with one of them cannot start."""
    failed: str = ""
    """Why it could not be asked."""

    @property
    def good(self) -> bool:
        """Whether nothing has to be done about it."""
        return not (self.failed or self.unknown_written or self.unknown_allowed)

    def said(self, where: str = "") -> str:
        """The outcome as a sentence; `where` is a node's name."""
        name = f"{self.engine} {self.version}" if self.version else self.engine
        name += f" on {where}" if where else ""
        if not self.installed:
            return f"{self.engine} is not installed {f'on {where}' if where else 'here'}"
        if self.failed:
            return f"{name} could not be asked: {self.failed}"
        takes = f"{self.allowed - len(self.unknown_allowed)} of {plural(self.allowed, 'flag')} that profiles may add"
        if self.unknown_allowed:
            takes += f", not {', '.join(self.unknown_allowed)}"
        flags = f"{plural(self.written, 'flag')} that llmgw writes"
        if self.unknown_written:
            return f"{name} does not know {', '.join(self.unknown_written)}, of {flags}, and takes {takes}"
        return f"{name} takes all {flags} and {takes}"
