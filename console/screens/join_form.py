"""A join token: for how long it is good, then the command to paste on the new node."""

from collections.abc import Sequence
from typing import ClassVar

from console.figures import moment, plural
from console.screens.fields import Field, whole
from console.screens.form import Form, Values
from console.screens.shown import Shown
from console.widgets.lines import Line
from llmgw.api.client import AdminClient
from llmgw.api.types import JoinToken, JoinTokenCreate

MAX_MINUTES = 24 * 60
"""Longest life of a token that the server allows."""


class JoinForm(Form[JoinToken]):
    """Minutes."""

    TITLE: ClassVar[str] = "let a node join"
    SUBMIT: ClassVar[str] = "Make a token"

    def fields(self) -> Sequence[Field]:
        """How long it is good for."""
        given = self.arguments[-1] if self.arguments else ""
        return (
            Field(
                name="minutes",
                label="minutes",
                help="how long the token is good for",
                value=given,
                stand_in=str(JoinTokenCreate().minutes),
                whole=(1, MAX_MINUTES),
            ),
        )

    def promise(self, values: Values) -> Line:
        """That it is good for one node."""
        minutes = plural(_minutes(values), "minute")
        return [
            ("enter", "key"),
            (" makes a token with which ", ""),
            ("one node", "strong"),
            (f" may join within {minutes}, and shows the command to paste there", ""),
        ]

    def send(self, api: AdminClient, values: Values) -> JoinToken:
        """Make it."""
        return api.join_token(JoinTokenCreate(minutes=_minutes(values)))

    def done(self, result: JoinToken) -> None:
        """The command."""
        until = moment(result.expires.timestamp())
        lines: list[Line] = [
            [
                ("Paste this on the new node, as root. It lets ", ""),
                ("one node", "strong"),
                (f" join, until {until}.", ""),
            ]
        ]
        self.host.push_screen(Shown("let a node join", lines, result.command, what="command"))


def _minutes(values: Values) -> int:
    return whole(values["minutes"]) or JoinTokenCreate().minutes
