"""The server's database, embedded or the operator's: opened, migrated, and an embedded one kept running."""

import logging
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import trio

from llmgw.core.config import ServerConfig
from llmgw.core.errors import InvalidInput, LlmgwError, Unavailable
from llmgw.core.layout import ServerLayout
from llmgw.store.embedded import EmbeddedPostgres
from llmgw.store.store import Store

RETRY_S = 1.0
"""Pause before a database that is away is tried again."""
SHORT_LIFE_S = 10.0
"""A database that ended sooner than this after its start is started again after a pause, not at once."""
MAX_URL_BYTES = 4096

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Database:
    """An open, migrated database."""

    store: Store
    conninfo: str
    describe: Callable[[], str]
    """`embedded, pid 123`, or the operator's host and database; never a password."""


@asynccontextmanager
async def open_database(config: ServerConfig, layout: ServerLayout) -> AsyncGenerator[Database, None]:
    """The database the configuration names, ready for use; closed, and an embedded one stopped, on the way out."""
    url = database_url(config)
    if url:
        store = await Store.open(url)
        try:
            await _migrate(store)
            yield Database(store=store, conninfo=url, describe=lambda: store.where)
        finally:
            await store.aclose()
        return
    postgres = EmbeddedPostgres(layout, account=config.postgres_account or None)
    try:
        conninfo = await postgres.start()
        store = await Store.open(conninfo)
        try:
            await _migrate(store)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_keep_running, postgres)
                yield Database(store=store, conninfo=conninfo, describe=lambda: f"embedded, pid {postgres.pid}")
                nursery.cancel_scope.cancel()
        finally:
            await store.aclose()
    finally:
        await postgres.stop()


def database_url(config: ServerConfig) -> str:
    """The operator's database, or nothing for the embedded one; raises InvalidInput for an unreadable file."""
    if not config.database_file:
        return config.database
    try:
        with Path(config.database_file).open("rb") as file:
            text = file.read(MAX_URL_BYTES).decode()
    except OSError as error:
        raise InvalidInput(f"{config.database_file} cannot be read: {error.strerror}", field="database_file") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{config.database_file} holds no URL: it is not text", field="database_file") from error
    return text.strip()


async def _migrate(store: Store) -> None:
    """Bring the schema up to date, waiting for a database that is not there yet."""
    told = False
    while True:
        try:
            applied = await store.migrate()
        except Unavailable as error:
            if not told:
                log.warning("waiting for the database: %s", error.message)
                # Nothing answers yet that could be asked what is the matter.
                print(f"llmgw server: waiting for the database: {error.message}", file=sys.stderr, flush=True)
                told = True
            await trio.sleep(RETRY_S)
            continue
        if applied:
            log.info("migrated", extra={"versions": ",".join(map(str, applied))})
        return


async def _keep_running(postgres: EmbeddedPostgres) -> None:
    """An embedded PostgreSQL that dies is started again; what needs it is refused meanwhile, not lost."""
    while True:
        began = trio.current_time()
        status = await postgres.wait_exit()
        if trio.current_time() - began < SHORT_LIFE_S:
            await trio.sleep(RETRY_S)
        log.error("PostgreSQL ended", extra={"status": status})
        while True:
            try:
                await postgres.start()
                log.info("PostgreSQL runs again", extra={"postgres_pid": postgres.pid})
                break
            except (LlmgwError, OSError) as error:
                # A full disk, no process or descriptor left: it may pass, and nothing that serves needs the database.
                log.error("PostgreSQL does not start: %s", error)
                await trio.sleep(RETRY_S)
