"""Documents of engines on nodes: what a check found, and what is asked to be installed."""

import msgspec


class EngineVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether an engine on a node takes the flags that llmgw gives it, by its own help."""

    node: str
    engine: str = ""
    """Empty where the node could not be asked at all."""
    version: str = ""
    installed: bool = True
    """Not to be installed is no fault."""
    good: bool
    """Whether nothing has to be done about it."""
    written: int = 0
    """Flags of the command line that llmgw writes."""
    allowed: int = 0
    """Flags that a profile may add."""
    unknown_written: tuple[str, ...] = ()
    """Of the former, those the engine does not know: no replica can start."""
    unknown_allowed: tuple[str, ...] = ()
    """Of the latter: a profile with one of them cannot start."""
    failed: str = ""
    """Why it could not be asked."""
    message: str
    """The outcome as a sentence."""


class BuildRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a node is to install."""

    engine: str
    version: str
    """`0.30.0`, `b10991` (llama.cpp), `default`, `none`, or `auto` for what the node's own agent.yaml says."""


class BuildInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One engine on a node, as far as installing goes."""

    engine: str
    asked: str
    """By the cluster: a version, `none`, or `auto`."""
    version: str = ""
    """What engines are started from now; empty where there is none."""
    state: str = ""
    """How far the version is that is asked for, or what it fails at."""
