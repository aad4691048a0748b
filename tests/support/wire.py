r"""The wire corpus: raw requests and conversations, each file with the verdict every door must give.

A file begins with lines `# NAME: VALUE`: `what` it is, and a verdict for `router` and for `web` (`admin` and `public`
instead, where they differ; `-` where no one answer is right). A verdict is the statuses answered, in their order, then
`closed` or `open`. The rest is what is sent: the file's line ends are left out, `\r`, `\n`, `\t`, `\0`, `\\` and `\xNN`
are bytes, `<<name>>` is a word of the door's (`Door`), `<<100*text>>` repeats, and a line `---` waits for the next
answer before going on.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

import trio

from tests.support.corpora import CORPORA
from tests.support.router_plane import Answer, RawClient

_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.))")
_WORD = re.compile(rb"<<(?:(\d+)\*(.*?)|(\w+))>>")
_CHARACTERS = {b"r": b"\r", b"n": b"\n", b"t": b"\t", b"0": b"\0", b"\\": b"\\"}


@dataclass(frozen=True, kw_only=True)
class Door:
    """A listener and what a request needs to be answered there."""

    name: str
    """Which verdict holds: `router`, `admin` or `public`."""
    get: bytes
    """A path that answers GET with 200."""
    post: bytes
    """A path that takes POST, if any does."""
    auth: bytes
    """A header line that is let in."""
    body: bytes
    """A body for `post`."""

    def words(self) -> dict[bytes, bytes]:
        """What the corpus calls by name; `next` is a request after the one in question."""
        return {
            b"get": self.get,
            b"post": self.post,
            b"auth": self.auth,
            b"body": self.body,
            b"length": b"%d" % len(self.body),
            b"hexlength": b"%x" % len(self.body),
            b"next": b"GET %b HTTP/1.1\r\nHost: gw\r\n%b\r\n" % (self.get, self.auth),
        }


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a door answers."""

    statuses: tuple[int, ...]
    closed: bool
    """Whether the connection ends after the last of them."""

    @property
    def refuses(self) -> bool:
        """Whether nothing of it may reach anybody behind the door."""
        return all(status >= 400 for status in self.statuses)


@dataclass(frozen=True, kw_only=True)
class WireCase:
    """One file."""

    name: str
    facts: dict[str, str]
    text: bytes
    parts: list[bytes] = field(default_factory=list)

    def concerns(self, door: Door) -> bool:
        """Whether there is one answer to hold `door` to."""
        return self._said(door) != "-"

    def _said(self, door: Door) -> str:
        return self.facts.get(door.name) or self.facts["web"]

    def verdict(self, door: Door) -> Verdict:
        """What `door` must answer."""
        said = self._said(door)
        *statuses, end = said.split()
        assert end in ("closed", "open"), said
        return Verdict(statuses=tuple(int(status) for status in statuses), closed=end == "closed")

    def sent(self, door: Door) -> list[bytes]:
        """What is sent, in the parts between which an answer is waited for."""
        words = door.words()

        def word(found: re.Match[bytes]) -> bytes:
            if found[3] is not None:
                return words[found[3]]
            return _unescape(found[2]) * int(found[1])

        parts = self.text.split(b"\n---\n")
        # Words first: what they stand for holds no escapes, and the bytes of escapes are no words.
        return [b"".join(_pieces(part.replace(b"\n", b""), word)) for part in parts]


def _pieces(text: bytes, word: object) -> list[bytes]:
    assert callable(word)
    pieces, at = [], 0
    for found in _WORD.finditer(text):
        pieces += [_unescape(text[at : found.start()]), word(found)]
        at = found.end()
    return [*pieces, _unescape(text[at:])]


def _unescape(text: bytes) -> bytes:
    def byte(found: re.Match[bytes]) -> bytes:
        return bytes([int(found[1], 16)]) if found[1] is not None else _CHARACTERS[found[2]]

    return _ESCAPE.sub(byte, text)


def wire_cases(directory: Path = CORPORA / "wire") -> dict[str, WireCase]:
    """The corpus, by name."""
    return {path.stem: _read(path) for path in sorted(directory.glob("*.txt"))}


def _read(path: Path) -> WireCase:
    lines = path.read_bytes().split(b"\n")
    facts: dict[str, str] = {}
    while lines and lines[0].startswith(b"# "):
        name, _, value = lines.pop(0)[2:].decode().partition(": ")
        facts[name] = value
    return WireCase(name=path.stem, facts=facts, text=b"\n".join(lines).strip(b"\n"))


async def converse(client: RawClient, case: WireCase, door: Door, *, piece: int = 1 << 30) -> list[Answer]:
    """Send the case in writes of `piece` bytes, and hold the verdict against what comes: the answers."""
    verdict, parts = case.verdict(door), case.sent(door)
    assert len(parts) <= len(verdict.statuses) or not verdict.statuses
    answers: list[Answer] = []
    async with trio.open_nursery() as nursery:
        sent = trio.Event()

        async def begin() -> None:
            await _send(client, parts[0], piece)
            sent.set()

        nursery.start_soon(begin)
        for number, expected in enumerate(verdict.statuses, 1):
            answer = await client.answer()
            answers.append(answer)
            assert answer.status == expected, (case.name, answer)
            assert answer.whole
            if number < len(parts):
                await sent.wait()
                await _send(client, parts[number], piece)
        if verdict.closed:
            assert await client.ended(), (case.name, client.buffer)
            nursery.cancel_scope.cancel()
    if not verdict.closed:
        await client.send(door.words()[b"next"])
        assert (await client.answer()).status == 200
    return answers


async def _send(client: RawClient, data: bytes, piece: int) -> None:
    try:
        for at in range(0, len(data), piece):
            await client.send(data[at : at + piece])
    except trio.BrokenResourceError:
        pass  # it was refused before its end, as it may be
