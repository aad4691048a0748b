"""What is kept of a request once it ended: who asked for what, who answered, and where its time went.

Neither the prompt nor the answer is among it, no key, and no word of an engine's: `said` is the gateway's own sentence.
"""

import msgspec

COMPLETE = "complete"
LEFT = "left"
STALLED = "stalled"
LOST = "lost"
FAILED = "failed"
REFUSED = "refused"
ENDS = (COMPLETE, REFUSED, FAILED, LEFT, STALLED, LOST)
"""How a request ends. `refused`: answered with an error before a replica was asked, or with one that is the client's
own. `failed`: no replica gave an answer. `left`: the client went. `stalled`: it stopped reading. `lost`: the answer
broke off."""


class Tried(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One replica that was asked."""

    replica: str
    model: str = ""
    """The replica's, where it is not the model that answered."""
    node: str = ""
    """Empty for an endpoint outside the cluster."""
    chosen_by: str = ""
    """Why it and no other, a few words."""
    failed: str = ""
    """What became of it, a few words; empty where it answered."""
    at_ms: float = 0.0
    """When it was asked, from the request's body having arrived."""
    duration_ms: float = 0.0


class RequestLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a router's request log. Times within a request count from its body having arrived."""

    id: str
    at: float
    """Unix seconds when it ended."""
    status: int
    """As the client read it; 499 where nobody was there to read it."""
    end: str
    """One of ENDS."""
    route: str = ""
    key_id: str = ""
    key: str = ""
    """The key's name, which is no secret."""
    team: str = ""
    tenant: str = ""
    asked: str = ""
    """What the client named, where that is not the model's own name."""
    fallback: bool = False
    """Another model answered in place of the one that was asked for."""
    model: str = ""
    replica: str = ""
    node: str = ""
    code: str = ""
    """Code of the error that the client read."""
    said: str = ""
    """What a limit, a budget, a queue or a model without replicas said, as the client read it."""
    limit: str = ""
    """The limit that refused it: `key/rpm`, `team/budget` and so on."""
    retry_s: float | None = None
    """When the client was told to come back, in seconds from `at`."""
    stream: bool = False
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    estimated: bool = False
    cost_micros: int = 0
    band: str = ""
    waited_ms: float = 0.0
    """How long it waited to be let in."""
    waited_for: str = ""
    """What it waited for, a few words."""
    attempts: tuple[Tried, ...] = ()
    first_token_ms: float | None = None
    duration_ms: float = 0.0
    client: str = ""
    """Address that asked."""
    trace: str = ""
    """Id of its trace, 32 hex digits."""
    passed_over: int = 0
    """Refusals of the same key, or of clients without a good one, before this one that were not written down."""
    router: int = 0
    """Which of the machine's routers served it; told by the file that the line is in."""

    @property
    def well(self) -> bool:
        """Whether the client got what it asked for."""
        return self.end == COMPLETE and self.status < 400

    @property
    def began_at(self) -> float:
        """Unix seconds when its body had arrived."""
        return self.at - self.duration_ms / 1000


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What routers write down and trace of requests; `ctl config set router.request_log.…` and `router.telemetry.…`."""

    log: str = "all"
    """`all` requests, those that `failed`, or `off`."""
    log_bytes: int = 32 * 1024 * 1024
    """A file is put aside at this size."""
    log_files: int = 4
    """Files kept of a router, the one being written among them."""
    endpoint: str = ""
    """URL that spans are posted to (OTLP over HTTP); empty traces nothing."""
    headers_file: str = ""
    """File on the router's machine with headers for that, `name: value` a line."""
    sample: float = 1.0
    """Share of requests traced, where the client does not say whether it traces."""


LOG_MODES = ("all", "failed", "off")
