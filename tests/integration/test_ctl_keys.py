"""`llmgw ctl keys|teams|tenants|usage`: what the server is asked, what scripts and people get back."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from llmgw.api.types import BandChange, KeyCreate, LimitsChange, TeamCreate, TenantCreate, UsageInfo
from llmgw.core.limits import Budget, Limits, Period, ScopeKind
from tests.support.admin_server import Running, running
from tests.support.fake_control import KEY

DAILY, MONTHLY = (
    Budget(amount_micros=5_000_000, period=Period.DAY),
    Budget(amount_micros=50_000_000, period=Period.MONTH),
)


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path) as server:
        yield server


class Ctl:
    """Runs ctl against one server."""

    def __init__(self, admin: Running) -> None:
        self.admin = admin

    def __call__(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "llmgw.cli.main", "ctl", "--server", self.admin.unix, *arguments],
            env={key: value for key, value in os.environ.items() if key in ("PATH", "LANG", "PYTHONPATH", "HOME")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert done.returncode == code, (arguments, done.stdout, done.stderr)
        return done

    def asked(self, what: str) -> tuple[object, ...]:
        """The newest call of that kind, without who asked."""
        return next(call for call in reversed(self.admin.control.calls) if call[0] == what)[1:]


@pytest.fixture
def ctl(admin: Running) -> Ctl:
    return Ctl(admin)


def test_a_key_with_everything(ctl: Ctl) -> None:
    made = ctl(
        *("keys", "create", "ci", "--team", "blue", "--models", "a,b", "--rpm", "60", "--tpm", "100000"),
        *("--parallel", "4", "--budget", "50/month,5/day", "--json"),
    )
    document = json.loads(made.stdout)
    assert (document["id"], document["key"], document["team"]) == ("k1", KEY, "blue")
    told = ("Team blue was not there and is made, without limits.", "No model is called a or b so far.")
    assert tuple(made.stderr.splitlines()) == told
    request = ctl.asked("create_key")[0]
    assert request == KeyCreate(
        name="ci",
        team="blue",
        models=("a", "b"),
        limits=Limits(rpm=60, tpm=100_000, parallel=4),
        budgets=(DAILY, MONTHLY),
    )
    assert ctl("keys", "create", "second", "--team", "blue").stderr.startswith("This is key k2 of second.")
    listed = ctl("keys", "list").stdout.splitlines()
    assert listed[1].split()[:10] == [
        *("k1", "ci", "blue", "a,b", "in", "force", "60", "100000", "4", "5.00/day,50.00/month")
    ]


def test_limits_are_changed_one_by_one_and_shown(ctl: Ctl) -> None:
    ctl("keys", "create", "ci", "--rpm", "60")
    assert ctl("keys", "limits", "ci", "--rpm", "none", "--parallel", "0").stderr == "ci: limits changed\n"
    assert ctl.asked("key_limits")[:2] == ("ci", LimitsChange(rpm=None, parallel=0))
    assert json.loads(ctl("keys", "limits", "k1", "--json").stdout) == {"rpm": None, "tpm": None, "parallel": 0}
    shown = ctl("keys", "limits", "k1").stdout
    assert "requests a minute  none\n" in shown
    assert "requests at once   0\n" in shown


def test_a_budget_is_set_whole_and_shown(ctl: Ctl) -> None:
    ctl("keys", "create", "ci")
    ctl("keys", "budget", "k1", "50/month")
    assert ctl.asked("key_budget")[:2] == ("k1", (MONTHLY,))
    assert "0.00 of 50.00 this month" in ctl("keys", "budget", "k1").stdout
    assert json.loads(ctl("keys", "budget", "k1", "--json").stdout) == [
        {"amount_micros": 50_000_000, "period": "month"}
    ]
    ctl("keys", "budget", "k1", "none")
    assert ctl.asked("key_budget")[:2] == ("k1", ())


@pytest.mark.parametrize("budget", ["50", "50/week", "1e3/day", "0.1234567/day", "5/day,6/day", "-5/day", "5 /day"])
def test_a_budget_that_is_none_never_reaches_the_server(ctl: Ctl, budget: str) -> None:
    refused = ctl("keys", "create", "x", f"--budget={budget}", code=2)
    assert refused.stderr.startswith("llmgw ctl: budget: ")
    assert ctl("keys", "budget", "x", "--", budget, code=2).stdout == ""
    assert ctl.admin.control.calls == []


def test_keys_are_moved_and_revoked_several_at_once(ctl: Ctl) -> None:
    for name in ("a", "b"):
        ctl("keys", "create", name)
    ctl("keys", "move", "k1", "blue")
    assert ctl.asked("move_key")[:2] == ("k1", "blue")
    ctl("keys", "move", "k1", "none")
    assert ctl.asked("move_key")[:2] == ("k1", None)
    assert len(ctl("--yes", "keys", "revoke", "k1", "k2").stderr.splitlines()) == 2
    assert isinstance(json.loads(ctl("--yes", "--json", "keys", "revoke", "k1").stdout), dict)
    assert len(json.loads(ctl("--yes", "--json", "keys", "revoke", "k1", "k2").stdout)) == 2
    assert "no key 'k9'" in ctl("--yes", "keys", "revoke", "k9", code=1).stderr
    assert "pass --yes" in ctl("keys", "revoke", "k1", code=2).stderr


def test_teams_and_tenants(ctl: Ctl) -> None:
    ctl("tenants", "create", "acme", "--budget", "50/month")
    assert ctl.asked("create_tenant")[0] == TenantCreate(name="acme", budgets=(MONTHLY,))
    ctl("teams", "create", "blue", "--tenant", "acme", "--rpm", "600")
    assert ctl.asked("create_team")[0] == TeamCreate(name="blue", tenant="acme", limits=Limits(rpm=600))
    assert ctl("teams").stdout.splitlines()[1].split()[:4] == ["blue", "acme", "0", "600"]
    assert ctl("tenants").stdout.splitlines()[0].split()[:2] == ["NAME", "KEYS"]
    ctl("teams", "limits", "blue", "--tpm", "5")
    assert ctl.asked("scope_limits")[:3] == (ScopeKind.TEAM, "blue", LimitsChange(tpm=5))
    assert json.loads(ctl("teams", "limits", "blue", "--json").stdout) == {"rpm": 600, "tpm": 5, "parallel": None}
    ctl("tenants", "budget", "acme", "none")
    assert ctl.asked("scope_budget")[:3] == (ScopeKind.TENANT, "acme", ())
    assert "0.00 this month" in ctl("tenants", "budget", "acme").stdout
    ctl("teams", "move", "blue", "none")
    assert ctl.asked("move_team")[:2] == ("blue", None)
    ctl("--yes", "teams", "remove", "blue")
    assert "no team 'blue'" in ctl("teams", "limits", "blue", code=1).stderr
    assert "a tenant 'acme' already" in ctl("tenants", "create", "acme", code=1).stderr


def test_usage_for_scripts_and_people(ctl: Ctl) -> None:
    ctl.admin.control.used = [
        UsageInfo(
            key_id="k1",
            key="ci",
            model="qwen",
            requests=3,
            input_tokens=30,
            cached_tokens=4,
            output_tokens=15,
            cost_micros=12_400_000,
            failed=1,
        )
    ]
    (row,) = json.loads(ctl("usage", "--json").stdout)
    assert row == {
        "key_id": "k1",
        "key": "ci",
        "model": "qwen",
        "requests": 3,
        "input_tokens": 30,
        "cached_tokens": 4,
        "output_tokens": 15,
        "cost_micros": 12_400_000,
        "failed": 1,
    }
    assert ctl.asked("usage") == ("key_model", None, None)
    people = ctl("usage").stdout.splitlines()
    assert [line.split()[:4] for line in people] == [["KEY", "ID", "MODEL", "REQUESTS"], ["ci", "k1", "qwen", "3"]]
    table = ctl("usage", "--by", "model", "--since", "2026-01-02", "--until", "2026-02-03").stdout.splitlines()
    assert ctl.asked("usage") == ("model", date(2026, 1, 2), date(2026, 2, 3))
    assert [line.split() for line in table] == [
        ["MODEL", "REQUESTS", "INPUT", "CACHED", "OUTPUT", "COST", "FAILED"],
        ["qwen", "3", "30", "4", "15", "12.40", "1"],
    ]
    (team,) = json.loads(ctl("usage", "--by", "team", "--json").stdout)
    assert team["team"] == ""
    assert "is not a day" in ctl("usage", "--since", "yesterday", code=2).stderr
    assert "is before" in ctl("usage", "--since", "2026-02-02", "--until", "2026-02-01", code=1).stderr


def test_bands_and_who_is_in_them(ctl: Ctl) -> None:
    def asked() -> tuple[object, ...]:
        return ctl.admin.control.band_calls[-1][:-1]

    listed = ctl("bands").stdout.splitlines()
    assert listed[0].split() == ["BAND", "PRIORITY", "WAITS", "KEYS", "TEAMS"]
    assert listed[1].split() == ["gold", "10", "5", "s", "2", "0"]
    assert listed[2].split() == ["default", "0", "30", "s", "(router.timeouts.queue)", "0", "0"]
    assert json.loads(ctl("bands", "list", "--json").stdout)[0]["own_ttl"] is True
    ctl("bands", "set", "bulk", "--priority", "-5", "--queue-ttl", "600")
    assert asked() == ("set_band", "bulk", BandChange(priority=-5, queue_ttl=600.0))
    ctl("bands", "set", "bulk", "--queue-ttl", "none")
    assert asked() == ("set_band", "bulk", BandChange(queue_ttl=None))
    assert "no number of seconds" in ctl("bands", "set", "bulk", "--queue-ttl", "soon", code=2).stderr
    ctl("keys", "create", "ci", "--band", "gold")
    assert ctl.asked("create_key")[0] == KeyCreate(name="ci", band="gold")
    ctl("keys", "band", "k1", "gold")
    assert asked() == ("key_band", "k1", "gold")
    ctl("teams", "band", "blue", "none")
    assert asked() == ("team_band", "blue", None)
    assert "there are gold, default" in ctl("keys", "band", "k1", "silver", code=1).stderr
    assert "used by key k1" in ctl("--yes", "bands", "remove", "gold", code=1).stderr
    ctl("--yes", "bands", "remove", "bulk")
    assert asked() == ("remove_band", "bulk")
