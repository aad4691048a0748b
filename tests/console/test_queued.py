"""Requests that wait in routers, as the overview, the models and a model's page show them."""

import msgspec
import pytest

from llmgw.api.watch import TrafficRow
from tests.console.harness import console_with, screen_text, shown, tell, until
from tests.support.fleet_rows import cluster_row, delta, model_row, snapshot


@pytest.mark.asyncio
async def test_who_waits_to_be_let_in_is_shown_while_somebody_does() -> None:
    models = {name: model_row(name) for name in ("m",)}
    console = console_with(snapshot({"cluster": {"cluster": cluster_row()}, "models": models}))
    waits = TrafficRow(requests_per_s=1.0, open_requests=5, queued=3, queued_oldest_s=1.24)
    async with shown(console, size=(200, 60)) as pilot:
        await until(lambda: "busiest first" in screen_text(console))
        assert "waiting" not in screen_text(console)
        await tell(console, pilot, delta({"traffic": {"*": waits, "m": waits}}))
        await until(lambda: "3 waiting · 1.2 s" in screen_text(console))
        await tell(console, pilot, delta({"traffic": {"*": msgspec.structs.replace(waits, queued=0)}}))
        await until(lambda: "3 waiting" not in screen_text(console))
        await pilot.press("2", "enter")
        await until(lambda: "at the door" in screen_text(console))
        assert "3 waiting · 1.2 s" in screen_text(console)
