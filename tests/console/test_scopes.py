"""Teams and tenants: who is above whom, how they stand, what is left, and what the list and the pages say of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from console.app import Console
from console.places import Place, Subject
from console.screens.band_form import BandForm
from console.screens.form import Form
from console.screens.key_form import KeyForm
from console.screens.keyview import Keys
from console.screens.quota_fields import budgets_in, limits_in
from console.screens.quota_forms import BudgetForm, LimitsForm, MoveForm
from console.screens.scope_form import TeamForm
from console.screens.scope_page import ScopePage, chain_lines
from console.screens.shown import Shown
from console.screens.usage import Usage
from console.screens.usage_rows import by_model, since, total
from console.state.attention import problems
from console.state.cluster import ClusterState
from console.state.rates import Rates
from console.state.scopes import chain, entries, entry_of, find, fullest, names_of, standing_of
from llmgw.api import types as t
from llmgw.api.actions import Target
from llmgw.api.targets import ServerTarget
from llmgw.api.watch import KeyRow, ModelRow, ScopeRow, scope_key
from llmgw.core.catalog import Model
from llmgw.core.external import External
from llmgw.core.limits import Budget, Limits, Period, ScopeKind
from llmgw.core.prices import Prices
from tests.console.harness import console_with, screen_text, shown, tell, until
from tests.support.console_plane import ConsolePlane, console_plane
from tests.support.fake_control import KEY
from tests.support.fake_keys import NOW as MADE
from tests.support.fleet_rows import NOW, delta, small_rows, snapshot

MICROS = 1_000_000
HOSTILE = "[@click=app.quit]x[/]"


def budget(amount: float, period: Period = Period.MONTH) -> Budget:
    return Budget(amount_micros=round(amount * MICROS), period=period)


def key(id_: str, name: str, **more: Any) -> KeyRow:
    return KeyRow(id=id_, name=name, **{"created": NOW - 9_000, **more})


def scope(kind: ScopeKind, name: str, **more: Any) -> ScopeRow:
    return ScopeRow(kind=kind, name=name, **{"created": NOW - 90_000, **more})


SCOPES = (
    scope(ScopeKind.TENANT, "acme", budgets=(budget(100),), spent_month_micros=100 * MICROS),
    scope(ScopeKind.TENANT, "house", limits=Limits(rpm=1_000, tpm=500_000)),
    scope(ScopeKind.TEAM, "prod", tenant="acme", keys=1),
    scope(
        ScopeKind.TEAM,
        "research",
        tenant="house",
        keys=2,
        limits=Limits(rpm=100, parallel=8),
        budgets=(budget(50),),
        spent_month_micros=12_400_000,
    ),
    scope(ScopeKind.TEAM, "lonely"),
)
KEYS = (
    key("k1", "web", team="prod", requests=5_000),
    key("k2", "evals", team="research", limits=Limits(rpm=60, tpm=100_000), budgets=(budget(20),)),
    key("k3", HOSTILE, team="research", budgets=(budget(5, Period.DAY), budget(90)), spent_day_micros=4_600_000),
    key("k4", "free"),
    key("k5", "gone", team="research", revoked=NOW - 5, budgets=(budget(1),), spent_month_micros=MICROS),
)


def rows() -> dict[str, dict[str, msgspec.Struct]]:
    return {
        **small_rows(),
        "keys": {row.id: row for row in KEYS},
        "scopes": {scope_key(row.kind, row.name): row for row in SCOPES},
    }


STATE, _ = ClusterState().apply(snapshot(rows()), at=NOW)


def used(key_id: str, model: str, cost: float, requests: int = 10) -> t.UsageInfo:
    return t.UsageInfo(
        key_id=key_id,
        model=model,
        requests=requests,
        input_tokens=100,
        output_tokens=50,
        cost_micros=round(cost * MICROS),
    )


USED = [used("k2", "qwen2.5-7b", 3), used("k3", "qwen2.5-7b", 4, 7), used("k3", "old-llama", 1), used("k1", "x[/]", 9)]


# -- what is above, and what follows from it


def test_the_chain_of_a_key_ends_where_nothing_is_above() -> None:
    assert [row.name for row in chain(STATE, STATE.keys["k2"])] == ["evals", "research", "house"]
    assert [row.name for row in chain(STATE, STATE.keys["k4"])] == ["free"]
    assert [row.name for row in chain(STATE, STATE.scopes["team:prod"])] == ["prod", "acme"]
    assert [row.name for row in chain(STATE, STATE.scopes["tenant:house"])] == ["house"]


def test_a_key_under_a_tenant_that_spent_everything_is_refused_and_says_why() -> None:
    found = entries(STATE, {}, tree=True)
    assert found["k1"].standing == ("spent", "tenant")
    assert found["team:prod"].standing == ("spent", "tenant")
    assert found["tenant:acme"].standing == ("spent", "")
    assert found["k3"].standing == ("near", "")
    assert found["k5"].standing == ("revoked", ""), "what is over stays over"
    assert found["k2"].standing == ("good", "")
    for entry in found.values():
        assert entry_of(STATE, entry.row).standing == entry.standing


def test_a_limit_of_nothing_and_a_budget_of_nothing_refuse() -> None:
    assert standing_of(key("k", "n", limits=Limits(parallel=0))) == "shut"
    assert standing_of(key("k", "n", budgets=(budget(0),))) == "spent"
    assert standing_of(key("k", "n", budgets=(budget(10),), spent_month_micros=8_999_999)) == "good"
    assert standing_of(key("k", "n", budgets=(budget(10),), spent_month_micros=9 * MICROS)) == "near"
    purse = fullest(STATE.keys["k3"])
    assert purse is not None
    assert purse.budget.period is Period.DAY, "the one that is spent first"
    assert purse.left_micros == 400_000


def test_the_tree_is_in_order_and_what_did_not_change_is_the_same_object() -> None:
    found = entries(STATE, {}, tree=True)
    order = sorted(found, key=lambda name: found[name].path)
    house = ["tenant:house", "team:research", "k3", "k2", "k5"]
    assert order == ["tenant:acme", "team:prod", "k1", *house, "team:lonely", "k4"]
    assert [found[name].depth for name in order] == [0, 1, 2, 0, 1, 2, 2, 2, 0, 0]
    spent = msgspec.structs.replace(SCOPES[0], spent_month_micros=0)
    after, _ = STATE.apply(delta({"scopes": {"tenant:acme": spent}}), at=NOW)
    again = entries(after, found, tree=True)
    assert {name for name in again if again[name] is not found[name]} == {"tenant:acme", "team:prod", "k1"}
    assert again["k1"].standing == ("good", "")


def test_names_on_the_line_are_ids_and_names_of_living_keys() -> None:
    assert names_of(STATE, Target.TEAM) == ["lonely", "prod", "research"]
    assert "gone" not in names_of(STATE, Target.KEY)
    assert find(STATE, Target.KEY, "evals") == "k2"
    assert find(STATE, Target.KEY, "gone") is None
    assert find(STATE, Target.TENANT, "research") is None


# -- attention


def sentences(rates: Rates | None = None, state: ClusterState = STATE) -> dict[str, str]:
    kinds = (Target.KEY, Target.TEAM, Target.TENANT)
    return {problem.name: problem.sentence for problem in problems(state, NOW, rates) if problem.target in kinds}


def test_budgets_that_are_spent_or_nearly_need_attention_with_figures() -> None:
    assert sentences() == {
        "acme": "tenant: budget spent, 100.00 of 100.00 a month: refused until the month ends in 30 d",
        HOSTILE: "key: 92% of its budget spent, 4.60 of 5.00 a day; the day ends in 11 h",
    }


def test_who_is_at_a_limit_by_the_minute_needs_attention_while_it_lasts() -> None:
    rates, state = Rates(), STATE
    state, diff = ClusterState().apply(snapshot(rows()), at=NOW)
    rates.record(state, diff, NOW - 50)
    busy = msgspec.structs.replace(STATE.keys["k2"], requests=59)
    state, diff = state.apply(delta({"keys": {"k2": busy}}), at=NOW)
    rates.record(state, diff, NOW - 5)
    assert sentences(rates, state)["evals"] == (
        "key: at its limit, 59 of 60 requests in the last minute: what is more is refused"
    )
    assert rates.pace("keys", "k2", NOW + 54).requests == 59
    assert rates.pace("keys", "k2", NOW + 56).requests == 0, "a minute later it is over"
    calm = msgspec.structs.replace(busy, limits=Limits())
    state, diff = state.apply(delta({"keys": {"k2": calm}}), at=NOW)
    rates.record(state, diff, NOW)
    assert rates.pace("keys", "k2", NOW).requests == 0, "without a limit nobody is followed"


def test_a_minute_is_what_came_since_the_last_sums_before_it() -> None:
    rates, limits = Rates(), Limits(tpm=10)
    for at, requests in ((0, 100), (30, 110), (61, 125), (62, 126), (90, 140)):
        state, diff = ClusterState().apply(
            snapshot({"keys": {"k": key("k", "n", limits=limits, requests=requests)}}), at=NOW
        )
        rates.record(state, diff, at)
    assert rates.pace("keys", "k", 90).requests == 30
    assert rates.pace("keys", "k", 119).requests == 30
    assert rates.pace("keys", "k", 121.5).requests == 14
    state, diff = ClusterState().apply(snapshot({"keys": {"k": key("k", "n", limits=limits, requests=3)}}), at=NOW)
    rates.record(state, diff, 125)
    assert rates.pace("keys", "k", 126).requests == 0, "a sum that shrank is of something else"


# -- the list


@pytest.mark.asyncio
async def test_the_list_is_a_tree_by_name_and_worst_first_by_state() -> None:
    console = console_with(snapshot(rows()), start="keys")
    async with shown(console, size=(120, 40)) as pilot:
        view = console.main.view
        assert isinstance(view, Keys)
        assert view.table.shown[:3] == ["tenant:acme", "team:prod", "k1"]
        text = screen_text(console)
        assert "      web " in text
        assert "✗ tenant spent" in text
        assert "12.40 of 50.00/month" in text
        assert "60 rpm · 100k tpm" in text
        assert HOSTILE[:10] in text
        assert "keys · 10 · 2 good · 1 refused · 1 near its budget · 1 revoked" in text
        await pilot.press("o")
        await pilot.pause()
        assert view.table.shown[:3] == ["tenant:acme", "k1", "team:prod"]
        assert view.table.shown[-1] == "k5"
        assert "      web " not in screen_text(console), "a list that is no tree has nothing stand in"


@pytest.mark.asyncio
async def test_filters_marks_and_subjects_are_of_three_kinds() -> None:
    console = console_with(snapshot(rows()), start="keys")
    async with shown(console) as pilot:
        view = console.main.view
        assert isinstance(view, Keys)
        await pilot.press("slash", *"team:research", "enter")
        assert view.table.shown == ["team:research", "k3", "k2", "k5"]
        assert console.main.subjects() == (Subject(target=Target.TEAM, key="research"),)
        await pilot.press("space", "space")
        assert console.main.subjects() == (
            Subject(target=Target.TEAM, key="research"),
            Subject(target=Target.KEY, key="k3"),
        )
        ids = {command.id for command in console.main.commands()}
        assert not ids & {"key.revoke", "team.limits", "key.limits"}, "nothing is possible for both"
        await pilot.press("escape", "escape", "slash", *"state:spent", "enter")
        assert view.table.shown == ["tenant:acme", "team:prod", "k1"]


@pytest.mark.asyncio
async def test_spending_that_moves_above_a_key_changes_its_row() -> None:
    console = console_with(snapshot(rows()), start="keys")
    async with shown(console) as pilot:
        assert screen_text(console).count("tenant spent") == 2
        paid = msgspec.structs.replace(SCOPES[0], budgets=(budget(1_000),))
        await tell(console, pilot, delta({"scopes": {"tenant:acme": paid}}))
        assert "tenant spent" not in screen_text(console)
        assert "100.00 of 1,000.00/month" in screen_text(console)


@pytest.mark.asyncio
async def test_the_line_finds_teams_and_keys_by_name() -> None:
    console = console_with(snapshot(rows()))
    async with shown(console) as pilot:
        for line, place in (
            ("teams research", Place(view="team", subject=Subject(target=Target.TEAM, key="research"))),
            ("keys evals", Place(view="key", subject=Subject(target=Target.KEY, key="k2"))),
            ("tenants", Place(view="keys")),
            ("usage team", Place(view="usage", subject=Subject(target=Target.CLUSTER, key="team"))),
        ):
            console.run_line(line)
            await until(lambda wanted=place: console.main.trail.here == wanted)  # type: ignore[misc]
            await pilot.pause()
        console.run_line("tenants")
        await until(lambda: isinstance(console.main.view, Keys))
        view = console.main.view
        assert isinstance(view, Keys)
        await until(lambda: view.table.shown == ["tenant:acme", "tenant:house"])
        console.run_line("keys limits evals")
        await until(lambda: isinstance(console.screen, LimitsForm))


# -- pages and usage


def text_of(lines: list[list[tuple[str, str]]]) -> list[str]:
    return ["".join(text for text, _ in line).rstrip() for line in lines]


def test_the_chain_names_who_limits_most() -> None:
    said = text_of(chain_lines(chain(STATE, STATE.keys["k2"]), NOW, 150))
    assert said[-1] == (
        "held to 60 rpm, 100,000 tpm by key evals · 8 at once by team research; "
        "20.00 left to spend by key evals; the month ends in 30 d"
    )
    assert text_of(chain_lines(chain(STATE, STATE.keys["k4"]), NOW, 150))[-1] == "no limits; no budget"
    for columns in (78, 118, 198):
        for row in (*KEYS, *SCOPES):
            assert all(len(line) <= columns for line in text_of(chain_lines(chain(STATE, row), NOW, columns)))


def test_usage_is_summed_by_model_for_the_keys_asked_about() -> None:
    found = by_model(USED, ["k2", "k3"])
    assert {model: (row.requests, row.cost_micros) for model, row in found.items()} == {
        "qwen2.5-7b": (17, 7 * MICROS),
        "old-llama": (10, MICROS),
    }
    assert total(USED).cost_micros == 17 * MICROS
    assert str(since("this month", NOW)) == "2026-03-01"
    assert since("ever", NOW) is None


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[tuple[ConsolePlane, Console]]:
    with console_plane(tmp_path, rows()) as (control, socket):
        control.used = USED
        control.keys_made = [t.KeyInfo(id=row.id, name=row.name, created=MADE, team=row.team) for row in KEYS]
        control.scopes_made = [
            t.ScopeInfo(kind=row.kind, name=row.name, tenant=row.tenant, created=MADE) for row in SCOPES
        ]
        yield control, Console(ServerTarget(socket=socket), start="keys")


@pytest.mark.asyncio
async def test_a_page_tells_what_was_used_and_leads_to_the_keys_beneath(plane: tuple[ConsolePlane, Console]) -> None:
    control, console = plane
    async with shown(console) as pilot:
        await until(lambda: "research" in screen_text(console))
        console.run_line("teams research")
        await until(lambda: isinstance(console.main.view, ScopePage))
        await until(lambda: "27 requests, 8.00 spent" in screen_text(console))
        assert [call[0] for call in control.calls] == ["usage"]
        text = screen_text(console)
        assert "used by model · 2 · this month" in text
        assert "key_model" in control.calls[0]
        await pilot.press("p", "p")
        await until(lambda: control.calls[-1] == ("usage", "key_model", None, None))
        await pilot.press("m")
        await until(lambda: isinstance(console.main.view, Keys))
        view = console.main.view
        assert isinstance(view, Keys)
        await until(lambda: view.table.shown == ["team:research", "k3", "k2", "k5"])


@pytest.mark.asyncio
async def test_usage_is_asked_for_by_other_things_in_turn(plane: tuple[ConsolePlane, Console]) -> None:
    control, console = plane
    control.used = [total(USED[:1], key_id="k2"), total(USED[1:3], key_id="k3"), total(USED[3:], key_id="unknown")]
    async with shown(console) as pilot:
        await until(lambda: "research" in screen_text(console))
        await pilot.press("u")
        await until(lambda: isinstance(console.main.view, Usage))
        await until(lambda: "evals" in screen_text(console))
        assert "usage · 3 · by key · this month · 37 requests, 17.00 spent" in screen_text(console)
        control.used = [t.UsageInfo(team="research", cost_micros=MICROS), t.UsageInfo(cost_micros=2)]
        await pilot.press("b")
        await until(lambda: "by team" in screen_text(console) and "none" in screen_text(console))
        assert control.calls[-1][1] == "team"
        await pilot.press("enter")
        await until(lambda: console.main.trail.here.view == "team")


# -- forms


def form_of(console: Console) -> Form[Any]:
    assert isinstance(console.screen, Form)
    return console.screen


def said(console: Console, field: str) -> str:
    return "".join(text for line in form_of(console).rows[field].note._given for text, _ in line)


def promised(console: Console) -> str:
    return "".join(text for line in form_of(console).promise_line._given for text, _ in line)


async def at(console: Console, pilot: Any, row: str, pressed: str) -> None:
    """A key pressed on a row of the list."""
    await until(lambda: isinstance(console.main.view, Keys) and row in console.main.view.table.shown)
    view = console.main.view
    assert isinstance(view, Keys)
    view.table.move_to(row)
    await pilot.press(pressed)


async def put(pilot: Any, console: Console, field: str, text: str) -> None:
    form_of(console).rows[field].input.value = text
    await pilot.pause()


@pytest.mark.asyncio
async def test_a_key_is_made_in_the_team_under_the_cursor_with_limits_and_a_budget(
    plane: tuple[ConsolePlane, Console],
) -> None:
    control, console = plane
    async with shown(console) as pilot:
        await at(console, pilot, "team:research", "n")
        assert isinstance(console.screen, KeyForm)
        assert form_of(console).values()["team"] == "research"
        assert "100 rpm · 8 at once, 50.00/month" in said(console, "team")
        await pilot.press(*"ci")
        await put(pilot, console, "budget", "50 a month")
        assert "is not a budget: write AMOUNT/day or AMOUNT/month" in said(console, "budget")
        await pilot.press("enter")
        assert not control.calls
        await put(pilot, console, "budget", "50/month, 5/day")
        await put(pilot, console, "rpm", "60")
        await put(pilot, console, "parallel", "0")
        assert "refuses every request" in said(console, "parallel")
        await put(pilot, console, "parallel", "")
        assert promised(console).endswith("; 60 rpm, 5.00/day,50.00/month")
        await put(pilot, console, "band", "Gold!")
        assert "is no band's name" in said(console, "band")
        await put(pilot, console, "band", "gold")
        await pilot.press("enter")
        await until(lambda: isinstance(console.screen, Shown))
        made = control.calls[0][1]
        assert made == t.KeyCreate(
            name="ci", team="research", limits=Limits(rpm=60), budgets=(budget(5, Period.DAY), budget(50)), band="gold"
        )
        assert KEY in screen_text(console)


@pytest.mark.asyncio
async def test_a_team_that_is_not_there_is_announced_before_it_is_made(plane: tuple[ConsolePlane, Console]) -> None:
    _, console = plane
    async with shown(console) as pilot:
        await at(console, pilot, "k4", "n")
        await pilot.press(*"ci")
        await put(pilot, console, "team", "robots")
        assert "no such team yet: it is made, without limits" in said(console, "team")
        await put(pilot, console, "team", "no[/] name")
        assert "✗" in said(console, "team")
        await put(pilot, console, "team", "robots")
        await pilot.press("enter")
        await until(lambda: isinstance(console.screen, Shown))
        assert "team robots, which was made for it" in screen_text(console)


@pytest.mark.asyncio
async def test_limits_are_changed_all_at_once_and_tell_what_is_above(plane: tuple[ConsolePlane, Console]) -> None:
    control, console = plane
    async with shown(console) as pilot:
        await at(console, pilot, "k2", "l")
        assert isinstance(console.screen, LimitsForm)
        assert promised(console) == "as it is: 60 rpm · 100k tpm"
        await put(pilot, console, "rpm", "200")
        assert "team research allows 100" in said(console, "rpm")
        await put(pilot, console, "tpm", "")
        assert promised(console) == "enter holds evals to 200 rpm; so far 60 rpm · 100k tpm"
        await pilot.press("enter")
        await until(lambda: bool(control.calls))
        assert control.calls[0][:3] == ("key_limits", "k2", t.LimitsChange(rpm=200, tpm=None, parallel=None))
        await until(lambda: console.screen is console.main)
        await at(console, pilot, "team:research", "l")
        await put(pilot, console, "parallel", "9")
        assert promised(console).endswith("; for 2 keys together")
        await pilot.press("enter")
        await until(lambda: control.calls[-1][:3] == ("scope_limits", ScopeKind.TEAM, "research"))


@pytest.mark.asyncio
async def test_a_budget_below_what_is_spent_says_so(plane: tuple[ConsolePlane, Console]) -> None:
    control, console = plane
    async with shown(console) as pilot:
        await at(console, pilot, "team:research", "b")
        assert isinstance(console.screen, BudgetForm)
        assert form_of(console).values()["budget"] == "50.00/month"
        await put(pilot, console, "budget", "10/month")
        assert "12.40 are spent this month: refused at once" in said(console, "budget")
        await put(pilot, console, "budget", "20/month,20/month")
        assert "two budgets a month" in said(console, "budget")
        await put(pilot, console, "budget", "none")
        assert promised(console).startswith("enter lets research spend without a budget; so far 50.00/month")
        await pilot.press("enter")
        await until(lambda: bool(control.calls))
        assert control.calls[0][:4] == ("scope_budget", ScopeKind.TEAM, "research", ())


@pytest.mark.asyncio
async def test_a_key_moves_to_a_team_that_is_there(plane: tuple[ConsolePlane, Console]) -> None:
    control, console = plane
    async with shown(console) as pilot:
        await at(console, pilot, "k2", "t")
        assert isinstance(console.screen, MoveForm)
        await put(pilot, console, "team", "nowhere")
        assert "no team is called so; there is lonely, prod, research" in said(console, "team")
        await put(pilot, console, "team", "prod")
        assert promised(console) == "enter puts evals under prod; what it spent so far stays with research"
        await pilot.press("enter")
        await until(lambda: bool(control.calls))
        assert control.calls[0][:3] == ("move_key", "k2", "prod")
        await until(lambda: console.screen is console.main)
        await at(console, pilot, "team:lonely", "t")
        await put(pilot, console, "tenant", "house")
        await pilot.press("enter")
        await until(lambda: control.calls[-1][:3] == ("move_team", "lonely", "house"))


@pytest.mark.asyncio
async def test_keys_and_teams_go_from_band_to_band(plane: tuple[ConsolePlane, Console]) -> None:
    control, console = plane
    async with shown(console) as pilot:
        await at(console, pilot, "k2", "B")
        assert isinstance(console.screen, BandForm)
        assert promised(console) == "as it is: band default"
        await put(pilot, console, "band", "Gold!")
        assert "is no band's name" in said(console, "band")
        await put(pilot, console, "band", "silver")
        await pilot.press("enter")
        await until(lambda: "there are gold, default" in said(console, "band"))
        await put(pilot, console, "band", "gold")
        assert promised(console) == "enter has requests of evals wait in band gold; so far in band default"
        await pilot.press("enter")
        await until(lambda: bool(control.band_calls))
        assert control.band_calls[0][:3] == ("key_band", "k2", "gold")
        await until(lambda: console.screen is console.main)
        row = msgspec.structs.replace(KEYS[1], band="gold")
        team = msgspec.structs.replace(SCOPES[3], band="bulk")
        await tell(console, pilot, delta({"keys": {"k2": row}, "scopes": {"team:research": team}}))
        await at(console, pilot, "k2", "B")
        assert form_of(console).values() == {"band": "gold"}
        await put(pilot, console, "band", "none")
        assert promised(console) == ("enter has requests of evals wait in its team's band bulk; so far in band gold")
        await pilot.press("enter")
        await until(lambda: control.band_calls[-1][:3] == ("key_band", "k2", None))
        await until(lambda: console.screen is console.main)
        await at(console, pilot, "team:research", "B")
        await put(pilot, console, "band", "")
        assert promised(console) == (
            "enter has requests of keys of research that name no band wait in band default; so far in band bulk"
        )
        await pilot.press("enter")
        await until(lambda: control.band_calls[-1][:3] == ("team_band", "research", None))


@pytest.mark.asyncio
async def test_teams_and_tenants_are_made_and_removed(plane: tuple[ConsolePlane, Console]) -> None:
    control, console = plane
    async with shown(console) as pilot:
        await at(console, pilot, "tenant:house", "N")
        assert isinstance(console.screen, TeamForm)
        assert form_of(console).values()["tenant"] == "house"
        await pilot.press(*"prod")
        assert "is a team already" in said(console, "name")
        await put(pilot, console, "name", "robots")
        await put(pilot, console, "budget", "7/day")
        await pilot.press("enter")
        await until(lambda: bool(control.calls))
        assert control.calls[0][1] == t.TeamCreate(name="robots", tenant="house", budgets=(budget(7, Period.DAY),))
        await until(lambda: console.screen is console.main)
        console.go(Place(view="keys"))
        await until(lambda: isinstance(console.main.view, Keys))
        view = console.main.view
        assert isinstance(view, Keys)
        view.table.move_to("team:research")
        await pilot.pause()
        assert "team.remove" not in {command.id for command in console.main.commands()}, "it has living keys"
        await at(console, pilot, "team:lonely", "D")
        assert "Removes 1 team, which no key is in any more." in screen_text(console)
        await pilot.press(*"lonely", "enter")
        await until(lambda: control.calls[-1][:3] == ("remove_scope", ScopeKind.TEAM, "lonely"))


@pytest.mark.asyncio
async def test_revoking_tells_how_much_the_key_is_used(plane: tuple[ConsolePlane, Console]) -> None:
    control, console = plane
    async with shown(console) as pilot:
        await at(console, pilot, "k3", "D")
        await until(lambda: "Since yesterday: 17 requests, 5.00 spent." in screen_text(console))
        assert control.calls[0][:2] == ("usage", "key")
        await pilot.press("escape")
        assert [call[0] for call in control.calls] == ["usage"]


def test_what_is_typed_is_what_is_sent() -> None:
    values = {"rpm": "1,000", "tpm": "", "parallel": "x", "budget": " 5/day , 0.5/month "}
    assert limits_in(values) == Limits(rpm=1_000)
    assert budgets_in(values) == (budget(5, Period.DAY), budget(0.5))


# -- models


@pytest.mark.asyncio
async def test_a_model_served_outside_shows_as_such_and_cannot_be_scaled() -> None:
    endpoint = External(base_url="https://api.lab/v1", model="big[/]", api_keys_file="/etc/keys")
    outside = ModelRow(
        name="outside",
        state="ready",
        ready=1,
        wanted=1,
        source=endpoint.base_url,
        spec=Model(name="outside", external=(endpoint,), prices=Prices(input=3.0, output=15.0)),
        cost_today_micros=28_310_000,
    )
    found = rows()
    found["models"] = {**found["models"], "outside": outside}
    console = console_with(snapshot(found), start="models")
    async with shown(console, size=(200, 40)) as pilot:
        await pilot.press("slash", *"at:outside", "enter")
        row = next(line for line in screen_text(console).splitlines() if " outside " in line and "api.lab" in line)
        assert all(part in row for part in ("ready", "1/1", "28.31", "3.00 / 15.00"))
        ids = {command.id for command in console.main.commands()}
        assert {"model.stop", "model.explain"} <= ids
        assert not ids & {"model.scale", "replica.restart.model"}
        await pilot.press("enter")
        await until(lambda: "served outside the cluster" in screen_text(console))
        assert "https://api.lab/v1 as big[/], keys from /etc/keys" in screen_text(console)
