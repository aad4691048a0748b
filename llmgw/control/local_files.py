"""What is wrong with files of this machine that routers need: told before the requests that need them fail.

They are read in a thread and by time: a file system that hangs holds up nobody who asks.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import trio

from llmgw.control import external
from llmgw.control.client_tls import ClientCertificate
from llmgw.core.catalog import Model

LOOK_S = 5.0
"""The files are looked at this often."""


class LocalFiles:
    """The client port's certificate and providers' keys."""

    def __init__(
        self, certificate: ClientCertificate, models: Callable[[], Iterable[Model]], private: Sequence[Path]
    ) -> None:
        """`private` files are never read as keys."""
        self._certificate = certificate
        self._models = models
        self._private = private
        self._found: tuple[str, ...] = ()

    def problems(self) -> tuple[str, ...]:
        """A sentence for each, as last looked at."""
        return self._found

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Service: look, until cancelled."""
        task_status.started()
        while True:
            models = tuple(self._models())
            self._found = await trio.to_thread.run_sync(self._look, models, abandon_on_cancel=True)
            await trio.sleep(LOOK_S)

    def _look(self, models: Sequence[Model]) -> tuple[str, ...]:
        return self._certificate.problems() + external.file_problems(models, self._private)
