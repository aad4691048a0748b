"""Server-sent events as a browser reads them: the algorithm of the HTML standard, "Interpreting an event stream"."""

import re

_LINE_END = re.compile(rb"\r\n|\n|\r")


def read_events(stream: bytes) -> list[tuple[bytes, bytes]]:
    """Type and data of every event that a client dispatches; an unfinished one at the end is none."""
    events: list[tuple[bytes, bytes]] = []
    kind, data = b"", list[bytes]()
    *lines, _ = _LINE_END.split(stream.removeprefix(b"\xef\xbb\xbf"))
    for line in lines:
        if not line:
            if data:
                events.append((kind or b"message", b"\n".join(data)))
            kind, data = b"", []
            continue
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            data.append(value)
        elif name == b"event":
            kind = value
    return events
