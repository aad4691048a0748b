"""Which version of an engine a node installs: what is asked of it now stands there, and what is there beside it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from console.places import Subject
from console.screens.fields import Field, said_of
from console.screens.form import Form, Values
from console.widgets.lines import Line
from llmgw.api.client import AdminClient
from llmgw.api.problems import ClientError
from llmgw.api.types import BuildInfo, Result
from llmgw.core.engine_builds import AUTO, NONE, check_build
from llmgw.core.errors import InvalidInput

if TYPE_CHECKING:
    from console.app import Console


class BuildForm(Form[Result]):
    """One version."""

    ENGINE: ClassVar[str]
    EXAMPLE: ClassVar[str] = "0.30.0"
    SUBMIT: ClassVar[str] = "Ask for it"

    def __init__(self, console: "Console", subjects: tuple[Subject, ...], arguments: tuple[str, ...]) -> None:
        self.node = subjects[0].key
        self.found: BuildInfo | None = None
        super().__init__(console, subjects, arguments)
        self._title = f"{self.ENGINE} on {self.node}"

    def fields(self) -> Sequence[Field]:
        """What is asked for; an argument of the `:` line stands in for what is."""
        given = self.arguments[0] if self.arguments else ""
        return (
            Field(
                name="version",
                label="version",
                help=f"{self.EXAMPLE}, {NONE}, or {AUTO} for what the node's agent.yaml says",
                value=given,
                required=True,
                offers=(AUTO, NONE),
                long=True,
            ),
        )

    def on_mount(self) -> None:
        """Hear what is asked for now."""
        self.run_worker(self._look(), group="builds", exclusive=True)
        self.set_focus(self.rows["version"].input)
        self.say()

    async def _look(self) -> None:
        try:
            builds = await self.host.admin.call(lambda api: api.node_builds(self.node))
        except ClientError:
            # The promise does without; a server that is away says so when it is asked to install.
            return
        self.found = next((build for build in builds if build.engine == self.ENGINE), None)
        version = self.rows["version"]
        if self.found is not None and not version.text:
            version.input.value = self.found.asked
            version.input.select_all()
        self.say()

    def check(self, values: Values) -> dict[str, str]:
        """What is no version."""
        if values["version"] == AUTO:
            return {}
        try:
            check_build(self.ENGINE, values["version"])
        except InvalidInput as error:
            return {"version": said_of(error)}
        return {}

    def remarks(self, values: Values) -> dict[str, Line]:
        """What is there now, and how far the next one is."""
        found = self.found
        if found is None or not (found.version or found.state):
            return {}
        there = f"{found.version} is there" if found.version else "none is there"
        return {"version": [(f"{there}; {found.state}" if found.state else there, "info")]}

    def promise(self, values: Values) -> Line:
        """What the node will do."""
        version = values["version"]
        if self.found is not None and version == self.found.asked:
            return [(f"as it is: {version} is asked for", "dim")]
        line: Line = [("enter", "key")]
        if version == AUTO:
            return [*line, (f" leaves {self.ENGINE} on {self.node} to its own agent.yaml", "")]
        if version == NONE:
            return [*line, (f" has {self.node} install no {self.ENGINE}; what is there stays on its disk", "")]
        return [
            *line,
            (f" has {self.node} install ", ""),
            (f"{self.ENGINE} {version}", "strong"),
            ("; until it is whole the one before starts engines", ""),
        ]

    def send(self, api: AdminClient, values: Values) -> Result:
        """Ask for it."""
        return api.ask_build(self.node, self.ENGINE, values["version"])

    def done(self, result: Result) -> None:
        """The server's sentence."""
        self.host.toast(result.message)


class VllmBuildForm(BuildForm):
    """vLLM's."""

    ENGINE = "vllm"


class SglangBuildForm(BuildForm):
    """SGLang's."""

    ENGINE = "sglang"
    EXAMPLE = "0.5.23"


class LlamaCppBuildForm(BuildForm):
    """llama.cpp's."""

    ENGINE = "llamacpp"
    EXAMPLE = "b10991"
