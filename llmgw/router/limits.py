"""Every bound the data plane puts on clients and engines, with the reason beside the figure."""

KIB = 1024
MIB = 1024 * 1024

MAX_HEAD_BYTES = 16 * KIB
"""Request line and headers; longer is 431."""
MAX_HEADERS = 100
"""Headers of a request; more is 431."""
MAX_BODY_BYTES = 32 * MIB
"""Body of an inference request; longer is 413."""
BIG_BODY_BYTES = 1 * MIB
"""A longer body is read and spliced in a thread: 32 MiB take 130 ms, in which no token would pass."""
MAX_RELAYED_BODY_BYTES = 512 * MIB
"""Body of a request relayed to the public app (an uploaded file), which is never held in memory."""
MAX_FORM_BYTES = 128 * MIB
"""Body of a form (sounds, pictures): five times what OpenAI takes of sounds; longer is 413."""
FORM_HELD_BYTES = 1 * MIB
"""More of a form waits in a file, not in memory."""
MAX_FORMS_BYTES = 2 * 1024 * MIB
"""All forms of one router that wait in files; one more is 503."""
MAX_PARTS = 256
"""Parts of a form."""
MAX_PART_HEAD_BYTES = 8 * KIB
"""Headers of one of them."""
MAX_FIELD_BYTES = 4 * KIB
"""A field of a form that the router reads."""
MAX_CHUNK_LINE_BYTES = 256
"""A chunk's size line with its extensions, and a trailer line: enough for anything honest."""

HEAD_DEADLINE_S = 10.0
"""From a connection's first silence, or a head's first byte, to the head's end."""
KEEP_ALIVE_IDLE_S = 75.0
"""An idle connection is kept this long between requests: longer than clients' own pools keep theirs."""
BODY_STALL_S = 60.0
"""Without a byte of the body for this long the request is answered 408."""
BODY_TOTAL_S = 600.0
"""The whole body must have arrived by then, so that a byte a minute holds no connection for days."""
LINGER_S = 2.0
"""How long a refused client's bytes are thrown away before the close, so that it can read its answer."""
LINGER_BYTES = 4 * MIB
"""How much of them."""

MAX_CONNECTIONS_PER_ADDRESS = 200
"""Open connections of one client address and router."""
UNCOUNTED_ADDRESSES = frozenset({"127.0.0.1", "::1", "::ffff:127.0.0.1"})
"""A proxy or tunnel on this machine speaks for many clients; it is not held to one client's share."""

RECV_BYTES = 64 * KIB
"""One read from an engine or a client."""
MAX_EVENT_BYTES = 128 * KIB
"""An event incomplete at this size is passed on in pieces; with one read it bounds a stream's memory to 256 KiB."""
MAX_ENGINE_HEAD_BYTES = 64 * KIB
"""Head of an engine's answer, interim answers included, and what comes in a row later that brings nothing of a body."""
MAX_ENGINE_BODY_BYTES = 64 * MIB
"""Body of an engine's unstreamed answer, and what is passed on of events that have no end."""
USAGE_TAIL_BYTES = 8 * KIB
"""End of an unstreamed answer in which its usage is looked for."""

MAX_ATTEMPTS = 3
"""Tries of one request with the model it names before its first byte reached the client."""
STANDIN_ATTEMPTS = 2
"""Tries with each model that may answer in its place."""
MAX_CHAIN_ATTEMPTS = 9
"""Tries of one request in all, where other models may answer in the place of the one that was asked for."""
TICK_S = 0.25
"""How often deadlines are looked at: no deadline here is meant to be finer."""
TURN_S = 0.003
"""How long the reactor serves streams before every other task gets its turn."""
POOL_IDLE_S = 60.0
"""An engine connection unused for this long is closed."""
POOL_SIZE = 256
"""Idle connections kept for one replica."""
STALE_S = 1.0
"""A kept engine connection that ends this soon after a request was sent had been closed while it was idle."""

FAILURES_IN_A_ROW = 3
"""Failures without a success between them that open a replica's breaker."""
RECENT_OUTCOMES = 20
"""How many of a replica's last outcomes are remembered."""
FAILURES_OF_RECENT = 10
"""So many failures among them open its breaker: half fail, even if every other request succeeds."""
PAUSE_FIRST_S = 1.0
"""A breaker that opens lets nobody through for this long."""
PAUSE_LAST_S = 30.0
"""The pause doubles up to this: what healed is back within it."""
MAX_TOLD_S = 300.0
"""Bound on the pause an endpoint outside the cluster asks for with `Retry-After`; engines are held to PAUSE_LAST_S."""
HUNG_AFTER_S = 3.0
"""A first byte that takes longer is late, unless it usually does: few prompts take this long to read."""
HUNG_TIMES = 8.0
"""A first byte is late when it takes this many times what the model's usually take: prompts differ in length."""
SHUN_S = 15.0
"""A replica that let somebody wait in vain is passed over this long, while there are others."""

LEADING_BYTES = 4 * KIB
"""Comments that an engine sends before its first event, up to here, are kept until then: nobody waits for them."""
AFTER_LAST_S = 1.0
"""How long an engine may still say something, its usage above all, after a stream's last event."""

KEEP_ALIVE_S = 15.0
"""A client of a stream that has heard nothing for this long is told that it is still served: proxies between cut
connections that are silent for 30 or 60 s."""

MAX_COUNT = 1_000_000_000
"""Bound on what an engine may claim as tokens of one answer."""
MAX_TOKENS_ASKED = 100_000_000
"""Bound on `max_tokens`, far over every context."""
MAX_CHOICES = 128
"""Bound on `n`."""
MAX_STRINGS = 200_000
"""JSON strings looked at when a body's keys must be told apart one by one."""
