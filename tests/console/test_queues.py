"""What engines say of their own queues, where an operator looks for it; and nothing in its place where they do not."""

import msgspec
import pytest

from console.places import Place, Subject
from console.screens.replicas import queue_spans
from console.signs import ASCII, UNICODE, use_signs
from llmgw.api.actions import Target
from llmgw.api.watch import ReplicaRow
from tests.console.harness import console_with, screen_lines, screen_text, shown, tell, until
from tests.support.fleet_rows import delta, replica_row, small_fleet, small_rows


def text_of(**said: float | int) -> str:
    """The words for a replica of which that is said."""
    row = msgspec.structs.replace(replica_row("r", "m", "n"), **said)
    return "".join(text for text, _ in queue_spans(row))


def test_a_queue_is_one_line_of_what_is_said() -> None:
    assert text_of(running=4, waiting=2, kv_used=0.61) == "4 running · 2 waiting · KV 61%"
    assert text_of(running=0, waiting=0) == "0 running · 0 waiting"
    assert text_of(kv_used=0.0) == "KV 0%"
    assert text_of() == ""
    use_signs(ASCII)
    try:
        assert text_of(running=4, waiting=1234) == "4 running - 1,234 waiting"
    finally:
        use_signs(UNICODE)


def test_what_waits_and_a_full_cache_stand_out() -> None:
    def tones(**said: float | int) -> set[str]:
        return {tone for _, tone in queue_spans(msgspec.structs.replace(replica_row("r", "m", "n"), **said))}

    assert "warn" not in tones(running=9, waiting=0, kv_used=0.89)
    assert "warn" in tones(waiting=1)
    assert "warn" in tones(kv_used=0.9)


def ready_of_one_model() -> list[ReplicaRow]:
    """The Ready replicas of the model that has most of them."""
    rows = [row for row in small_rows()["replicas"].values() if isinstance(row, ReplicaRow) and row.state == "ready"]
    models = [row.model for row in rows]
    return [row for row in rows if row.model == max(models, key=models.count)]


@pytest.mark.asyncio
async def test_queues_are_shown_with_the_replica_and_summed_up_with_the_model() -> None:
    console = console_with(small_fleet(), start="replicas")
    first, second = ready_of_one_model()[:2]
    async with shown(console, size=(200, 60)) as pilot:
        assert f"{first.in_flight} of {first.slots} slots" in screen_text(console)
        said = [
            msgspec.structs.replace(first, running=16, waiting=5, kv_used=0.93),
            msgspec.structs.replace(second, running=3, waiting=2),
        ]
        await tell(console, pilot, delta({"replicas": {row.id: row for row in said}}))
        await until(lambda: "16 running · 5 waiting · KV 93%" in screen_text(console))
        assert "3 running · 2 waiting" in screen_text(console)
        console.go(Place(view="replica", subject=Subject(target=Target.REPLICA, key=first.id)))
        await until(lambda: any("queue" in line and "16 running · 5 waiting" in line for line in screen_lines(console)))
        console.go(Place(view="model", subject=Subject(target=Target.MODEL, key=first.model)))
        await until(lambda: "7 waiting at 2 replicas" in screen_text(console))
        await pilot.press("2")
        await until(lambda: any(first.model in line and " 7 " in line for line in screen_lines(console)))
