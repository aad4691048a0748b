"""The line of a form's field. Keys that come in a burst mean what they mean one by one, as over a slow line.

A terminal's keys are handed to what has the keys when they arrive, not when their turn comes: behind a tab they would
all be the field's that is left. So a field does what a key asks for at once, and gives on what is another's by then.
"""

import re
from typing import Protocol, runtime_checkable

from textual import events
from textual.widgets import Input

UNTYPEABLE = "\\x00-\\x1f\\x7f-\\x9f\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff"
"""What no field takes, as a set of a regular expression: what moves the cursor or hides itself."""


@runtime_checkable
class Around(Protocol):
    """The form around a field."""

    def submit(self) -> None:
        """Send it, or say what is wrong."""

    def action_move(self, by: int) -> None:
        """Walk the fields."""


_STEPS = {"up": -1, "down": 1}


class FieldInput(Input):
    """An input whose keys wait for nothing."""

    def _on_paste(self, event: events.Paste) -> None:
        """The first line with anything in it, without what hides in a copied text: a refusal could not be seen."""
        event.stop()
        event.prevent_default()
        line = next((line.strip() for line in event.text.splitlines() if line.strip()), "")
        self.replace(re.sub(f"[{UNTYPEABLE}]", "", line), *self.selection)

    async def on_key(self, event: events.Key) -> None:
        """Give it on, or do it here and not after."""
        here = self.screen.focused
        if here is not None and here is not self:
            _take(event)
            here.post_message(events.Key(event.key, event.character))
        elif event.key == "enter" and isinstance(form := self.screen, Around):
            _take(event)
            form.submit()
        elif event.key in _STEPS and isinstance(form := self.screen, Around):
            _take(event)
            form.action_move(_STEPS[event.key])
        elif not event.is_printable:
            await self._run_binding(event)

    async def _run_binding(self, event: events.Key) -> None:
        active = self.screen.active_bindings.get(event.key)
        if active is not None and active.enabled:
            _take(event)
            await self.app.run_action(active.binding.action, active.node)


def _take(event: events.Key) -> None:
    event.stop()
    event.prevent_default()
