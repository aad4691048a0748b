"""In which band a key's requests wait, or those of a team's keys that name none."""

from collections.abc import Sequence
from typing import ClassVar

from console.screens.fields import Field
from console.screens.form import Values
from console.screens.quota_forms import OneForm
from console.state.cluster import ClusterState
from console.state.scopes import Row, scope
from console.widgets.lines import Line
from llmgw.api.actions import Target
from llmgw.api.client import AdminClient
from llmgw.api.types import Result
from llmgw.api.watch import KeyRow
from llmgw.core.admission import DEFAULT_BAND, is_band_name
from llmgw.core.limits import ScopeKind
from llmgw.core.money import NONE

_FIELD = "band"


class BandForm(OneForm):
    """One field: a band's name, or nothing for the band it is in without one of its own."""

    TITLE: ClassVar[str] = "band"
    SUBMIT: ClassVar[str] = "Set"

    @property
    def before(self) -> str:
        """The band of its own."""
        return (self.row.band or "") if self.row is not None else ""

    @property
    def otherwise(self) -> str:
        """Where its requests wait without one, in words."""
        name = self.row.team if isinstance(self.row, KeyRow) else None
        team = scope(self.host.store.state, ScopeKind.TEAM, name) if name else None
        return f"its team's band {team.band}" if team is not None and team.band else f"band {DEFAULT_BAND}"

    def fields(self) -> Sequence[Field]:
        """The band; an argument of the `:` line stands in for what is."""
        return (
            Field(
                name=_FIELD,
                label="band",
                help=f"empty for {self.otherwise}; ctl bands list shows them",
                value=self.arguments[0] if self.arguments else self.before,
                stand_in=NONE,
                offers=_known(self.host.store.state),
            ),
        )

    def check(self, values: Values) -> dict[str, str]:
        """What no band can be called; which there are, the server knows."""
        wanted = _wanted(values)
        return {} if not wanted or is_band_name(wanted) else {_FIELD: "is no band's name: a-z, 0-9, - and _"}

    def promise(self, values: Values) -> Line:
        """Where requests wait from then on."""
        wanted = _wanted(values)
        if wanted == self.before:
            return [(f"as it is: {self._called(wanted)}", "dim")]
        whose = f"requests of {self.called}"
        if self.subject.target is not Target.KEY:
            whose = f"requests of keys of {self.called} that name no band"
        line: Line = [("enter", "key"), (f" has {whose} wait in ", "")]
        line.append((self._called(wanted), "strong"))
        return [*line, (f"; so far in {self._called(self.before)}", "dim")]

    def _called(self, band: str) -> str:
        return f"band {band}" if band else self.otherwise

    def send(self, api: AdminClient, values: Values) -> Result:
        """Set it."""
        wanted = _wanted(values) or None
        if self.subject.target is Target.KEY:
            return api.key_band(self.subject.key, wanted)
        return api.team_band(self.subject.key, wanted)


def _wanted(values: Values) -> str:
    word = values[_FIELD]
    return "" if word.lower() == NONE else word


def _known(state: ClusterState) -> Sequence[str]:
    """Bands that somebody is in, and the one that is always there."""
    rows: tuple[Row, ...] = (*state.keys.values(), *state.scopes.values())
    return sorted({DEFAULT_BAND, *(row.band for row in rows if row.band)})
