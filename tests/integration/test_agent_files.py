"""Files of the agent: journal, output, logs and lock on a real disk."""

import os
from pathlib import Path

import pytest
import trio

from agent.journal import Entry, Journal, file_name
from agent.lock import data_lock
from agent.logs import MAX_READERS, MESSAGE_MAX_BYTES, LogDesk
from agent.output import last_lines, rotate_if_long
from agent.process import ProcessName
from llmgw.core.errors import Conflict, InvalidInput
from llmgw.core.layout import AgentLayout
from llmgw.wire.llmgw.v1 import AgentMessage, LogLines, LogRequest
from tests.support.agent_node import sim_spec


def entry(shard_id: str = "r1/0") -> Entry:
    """An entry with a process."""
    process = ProcessName(boot_id="b", pid=7, start_time=9)
    return Entry(
        shard_id=shard_id,
        cluster_id="c",
        host="127.0.0.1",
        port=18000,
        key_file="/k",
        spec=sim_spec(shard_id).to_json(),
        process=process,
    )


def test_the_journal_gives_back_what_it_was_told(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.write(entry())
    journal.write(entry("r2/0"))
    entries, problems = journal.load()
    assert (entries, problems) == ([entry(), entry("r2/0")], [])
    assert entries[0].shard_spec() == sim_spec()
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "journal").iterdir()} == {0o600}
    journal.remove("r1/0")
    journal.remove("r1/0")
    assert journal.load()[0] == [entry("r2/0")]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"shard_id": 3}', b"\xff\x00", b"x" * 2_000_000, b'{"shard_id":"r1/0"}'],
    ids=["empty", "cut", "list", "types", "bytes", "long", "fields"],
)
def test_a_damaged_entry_is_set_aside_with_a_sentence(tmp_path: Path, content: bytes) -> None:
    journal = Journal(tmp_path)
    journal.write(entry("r2/0"))
    (tmp_path / f"{file_name('r1/0')}.json").write_bytes(content)
    entries, problems = journal.load()
    assert entries == [entry("r2/0")]
    assert len(problems) == 1
    assert "set aside" in problems[0]
    assert journal.load() == ([entry("r2/0")], [])
    assert len(list(tmp_path.glob("*.damaged"))) == 1


def test_an_entry_under_another_shards_name_is_not_believed(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write(entry())
    (tmp_path / f"{file_name('r1/0')}.json").rename(tmp_path / f"{file_name('r2/0')}.json")
    assert journal.load()[0] == []


@pytest.mark.parametrize("shard_id", ["", "../x", "/x", "a\0b", "a" * 200, "é", "a b"])
def test_an_id_that_is_no_file_name_is_refused(shard_id: str) -> None:
    with pytest.raises(InvalidInput):
        file_name(shard_id)


def test_a_long_output_is_copied_and_emptied_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    with path.open("ab", buffering=0) as engine:
        for number in range(4):
            engine.write(b"%d" % number * 1000)
            assert rotate_if_long(path, max_bytes=500)
            assert path.stat().st_size == 0
        engine.write(b"after")
    assert path.read_bytes() == b"after"
    assert not rotate_if_long(path, max_bytes=500)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["output.log", "output.log.1", "output.log.2"]
    assert (tmp_path / "output.log.1").read_bytes() == b"3" * 500
    assert (tmp_path / "output.log.2").read_bytes() == b"2" * 500


def test_last_lines_are_plain_text(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    path.write_bytes(b"one\n\n\x1b[31mred\x1b[0m \xff\x07 \xe2\x80\xae\n10%\r20%\r\nlast")
    assert last_lines(path, 3) == ["red \ufffd ", "20%", "last"]
    assert last_lines(tmp_path / "none", 3) == []


async def answer(layout: AgentLayout, request: LogRequest) -> list[LogLines]:
    """Everything said in answer, up to its end."""
    send, inbox = trio.open_memory_channel[AgentMessage](0)
    desk = LogDesk(layout, send)
    said: list[LogLines] = []
    async with trio.open_nursery() as nursery:
        await nursery.start(desk.run)
        desk.request(request)
        with trio.fail_after(60):
            async for message in inbox:
                assert message.log_lines is not None
                said.append(message.log_lines)
                if message.log_lines.end:
                    break
        nursery.cancel_scope.cancel()
    return said


@pytest.mark.trio
async def test_a_tail_is_bounded_in_lines_and_bytes_a_message(tmp_path: Path) -> None:
    layout = AgentLayout(data=tmp_path)
    layout.log.mkdir()
    lines = [f"{number} {'x' * 1000}" for number in range(1000)]
    (layout.log / "agent.log").write_text("\n".join(lines))
    said = await answer(layout, LogRequest(request_id="q", tail_lines=300))
    got = [line for message in said for line in message.lines]
    assert got == lines[-300:]
    assert len(said) > 4
    assert all(len(bytes(message)) < MESSAGE_MAX_BYTES * 1.2 for message in said)
    assert not [m for m in await answer(layout, LogRequest(request_id="q", tail_lines=0)) if m.lines]


@pytest.mark.trio
async def test_a_shard_id_does_not_lead_out_of_the_directory(tmp_path: Path) -> None:
    (said,) = await answer(AgentLayout(data=tmp_path), LogRequest(request_id="q", shard_id="../../etc/passwd"))
    assert "no id of a shard" in said.error


@pytest.mark.trio
async def test_a_followed_file_that_is_emptied_goes_on_and_readers_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.logs.FOLLOW_EVERY_S", 0.01)
    layout = AgentLayout(data=tmp_path)
    layout.log.mkdir()
    path = layout.log / "agent.log"
    path.write_text("old line\npart")
    send, inbox = trio.open_memory_channel[AgentMessage](100)
    desk = LogDesk(layout, send)

    async def line() -> LogLines:
        with trio.fail_after(60):
            message = await inbox.receive()
        assert message.log_lines is not None
        return message.log_lines

    async with trio.open_nursery() as nursery:
        await nursery.start(desk.run)
        desk.request(LogRequest(request_id="q", tail_lines=10, follow=True))
        assert (await line()).lines == ["old line"]
        with path.open("a") as file:
            file.write("ial\n")
        assert (await line()).lines == ["partial"]
        os.truncate(path, 0)
        with path.open("a") as file:
            file.write("new\n")
        assert (await line()).lines == ["new"]
        for number in range(MAX_READERS - 1):
            desk.request(LogRequest(request_id=f"more{number}", follow=True))
        desk.request(LogRequest(request_id="last", follow=True))
        assert "being read already" in (await line()).error
        desk.cancel_all()
        desk.request(LogRequest(request_id="again", tail_lines=1))
        assert (await line()).lines == ["new"]
        nursery.cancel_scope.cancel()


def test_a_lock_has_one_holder_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with data_lock(path):
        with pytest.raises(Conflict, match=str(os.getpid())), data_lock(path):
            pass
        assert path.read_text() == f"{os.getpid()}\n"
    assert not path.exists()
    with data_lock(path):
        pass
