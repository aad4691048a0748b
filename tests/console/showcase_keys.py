"""The pictures' keys, teams and tenants, and what these used."""

from collections.abc import Callable

from console.screens.usage_rows import total
from llmgw.api.types import UsageInfo
from llmgw.api.watch import KeyRow, ScopeRow, scope_key
from llmgw.core.limits import Budget, Limits, Period, ScopeKind
from tests.console.showcase_names import MODEL
from tests.support.fleet_rows import NOW


def keys() -> dict[str, KeyRow]:
    """Of machines and people."""
    made = (
        KeyRow(
            id="key-1",
            name="ci",
            created=NOW - 9_000_000,
            last_used=NOW - 4,
            requests=1_204_000,
            input_tokens=2_400_000_000,
            output_tokens=310_000_000,
            team="platform",
            limits=Limits(rpm=600, parallel=32),
            cost_micros=4_812_000_000,
            spent_day_micros=18_400_000,
            spent_month_micros=402_120_000,
        ),
        KeyRow(
            id="key-2",
            name="chat-frontend",
            models=("llama-3.3-70b", "qwen2.5-7b"),
            team="assistants",
            limits=Limits(rpm=3_000, tpm=2_000_000, parallel=64),
            budgets=(
                Budget(amount_micros=40_000_000, period=Period.DAY),
                Budget(amount_micros=500_000_000, period=Period.MONTH),
            ),
            cost_micros=1_204_550_000,
            spent_day_micros=12_400_000,
            spent_month_micros=466_300_000,
            created=NOW - 2_400_000,
            last_used=NOW - 0.6,
            requests=88_412,
            input_tokens=91_000_000,
            output_tokens=40_500_000,
        ),
        KeyRow(id="key-3", name="notebook-anna", models=(MODEL,), created=NOW - 90_000),
        KeyRow(
            id="key-5",
            name="evals-nightly",
            team="research",
            limits=Limits(tpm=5_000_000),
            budgets=(Budget(amount_micros=50_000_000, period=Period.MONTH),),
            created=NOW - 800_000,
            last_used=NOW - 3_700,
            requests=41_200,
            input_tokens=310_000_000,
            output_tokens=22_000_000,
            cost_micros=71_040_000,
            spent_day_micros=0,
            spent_month_micros=12_400_000,
        ),
        KeyRow(
            id="key-6",
            name="thesis-björn",
            team="research",
            limits=Limits(rpm=60, tpm=100_000, parallel=4),
            budgets=(Budget(amount_micros=5_000_000, period=Period.DAY),),
            created=NOW - 400_000,
            last_used=NOW - 42,
            requests=9_020,
            input_tokens=7_900_000,
            output_tokens=1_400_000,
            cost_micros=19_000_000,
            spent_day_micros=5_000_400,
            spent_month_micros=11_700_000,
        ),
        KeyRow(
            id="key-7",
            name="acme-web",
            team="acme-prod",
            limits=Limits(rpm=1_200),
            created=NOW - 3_000_000,
            last_used=NOW - 9,
            requests=214_000,
            input_tokens=180_000_000,
            output_tokens=61_000_000,
            cost_micros=310_000_000,
            spent_day_micros=2_210_000,
            spent_month_micros=100_000_000,
        ),
        KeyRow(
            id="key-4",
            name="leaked-in-march",
            created=NOW - 7_000_000,
            revoked=NOW - 6_000_000,
            last_used=NOW - 6_000_100,
            requests=310,
            input_tokens=40_000,
            output_tokens=9_000,
        ),
    )
    return {row.id: row for row in made}


def scopes() -> dict[str, ScopeRow]:
    """Tenants and teams."""
    made = (
        ScopeRow(
            kind=ScopeKind.TENANT,
            name="acme",
            budgets=(Budget(amount_micros=100_000_000, period=Period.MONTH),),
            spent_day_micros=2_210_000,
            spent_month_micros=100_000_000,
            cost_micros=310_000_000,
            keys=1,
            requests=214_000,
            input_tokens=180_000_000,
            output_tokens=61_000_000,
            created=NOW - 3_100_000,
        ),
        ScopeRow(
            kind=ScopeKind.TENANT,
            name="in-house",
            limits=Limits(rpm=12_000, tpm=20_000_000),
            spent_day_micros=35_800_400,
            spent_month_micros=892_520_000,
            cost_micros=6_106_590_000,
            keys=4,
            requests=1_342_632,
            input_tokens=2_808_900_000,
            output_tokens=373_900_000,
            created=NOW - 9_100_000,
        ),
        ScopeRow(
            kind=ScopeKind.TEAM,
            name="acme-prod",
            tenant="acme",
            limits=Limits(parallel=40),
            keys=1,
            spent_day_micros=2_210_000,
            spent_month_micros=100_000_000,
            cost_micros=310_000_000,
            requests=214_000,
            input_tokens=180_000_000,
            output_tokens=61_000_000,
            created=NOW - 3_000_500,
        ),
        ScopeRow(
            kind=ScopeKind.TEAM,
            name="assistants",
            tenant="in-house",
            keys=1,
            budgets=(Budget(amount_micros=2_000_000_000, period=Period.MONTH),),
            spent_day_micros=12_400_000,
            spent_month_micros=466_300_000,
            cost_micros=1_204_550_000,
            requests=88_412,
            input_tokens=91_000_000,
            output_tokens=40_500_000,
            created=NOW - 2_400_100,
        ),
        ScopeRow(
            kind=ScopeKind.TEAM,
            name="platform",
            tenant="in-house",
            keys=1,
            limits=Limits(rpm=6_000),
            spent_day_micros=18_400_000,
            spent_month_micros=402_120_000,
            cost_micros=4_812_000_000,
            requests=1_204_000,
            input_tokens=2_400_000_000,
            output_tokens=310_000_000,
            created=NOW - 9_050_000,
        ),
        ScopeRow(
            kind=ScopeKind.TEAM,
            name="research",
            tenant="in-house",
            keys=2,
            limits=Limits(tpm=6_000_000, parallel=24),
            budgets=(Budget(amount_micros=200_000_000, period=Period.MONTH),),
            spent_day_micros=5_000_400,
            spent_month_micros=24_100_000,
            cost_micros=90_040_000,
            requests=50_220,
            input_tokens=317_900_000,
            output_tokens=23_400_000,
            created=NOW - 800_100,
        ),
        ScopeRow(kind=ScopeKind.TEAM, name="interns", created=NOW - 40_000, limits=Limits(rpm=30)),
    )
    return {scope_key(row.kind, row.name): row for row in made}


USED = tuple(
    UsageInfo(
        key_id=key,
        model=model,
        requests=requests,
        input_tokens=read,
        cached_tokens=read // 3,
        output_tokens=written,
        cost_micros=cost,
        failed=failed,
    )
    for key, model, requests, read, written, cost, failed in (
        ("key-1", "qwen2.5-7b", 310_400, 610_000_000, 81_000_000, 112_020_000, 12),
        ("key-1", "llama-3.3-70b", 91_000, 190_000_000, 31_000_000, 290_100_000, 0),
        ("key-2", "llama-3.3-70b", 61_220, 70_000_000, 31_000_000, 410_200_000, 3),
        ("key-2", "qwen2.5-7b", 20_010, 21_000_000, 9_500_000, 56_100_000, 0),
        ("key-5", MODEL, 6_120, 48_000_000, 3_100_000, 12_400_000, 0),
        ("key-6", MODEL, 2_410, 2_600_000, 500_000, 7_200_000, 41),
        ("key-6", "embed-m3", 3_900, 1_900_000, 0, 4_500_000, 0),
        ("key-7", "mistral-large", 71_300, 60_000_000, 20_300_000, 100_000_000, 7),
        ("key-0", "old-llama", 12, 9_000, 800, 2_100, 0),
    )
)
"""What was used this month, by key and model; `key-0` is not known any more."""


def used(by: str) -> list[UsageInfo]:
    """`USED` as the server sums it."""
    teams = {key.id: key.team or "" for key in keys().values()}
    tenants = {row.name: row.tenant or "" for row in scopes().values()}
    names: dict[str, Callable[[UsageInfo], dict[str, str]]] = {
        "key": lambda row: {"key_id": row.key_id},
        "model": lambda row: {"model": row.model},
        "team": lambda row: {"team": teams.get(row.key_id, "")},
        "tenant": lambda row: {"tenant": tenants.get(teams.get(row.key_id, ""), "")},
        "key_model": lambda row: {"key_id": row.key_id, "model": row.model},
    }
    groups: dict[tuple[str, ...], list[UsageInfo]] = {}
    for row in USED:
        groups.setdefault(tuple(names[by](row).values()), []).append(row)
    return [total(rows, **names[by](rows[0])) for rows in groups.values()]
