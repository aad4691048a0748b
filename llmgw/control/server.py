"""`llmgw server`, from top to bottom. What stands further in ends first.

data lock, log
  signals
    database
      store watcher, feed, mirror, agent port, sessions, and (while leading) the reconciler
        routers
          admin app, public app
"""

import errno
import logging
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import trio

from llmgw.control import identity
from llmgw.control.client_tls import ClientCertificate
from llmgw.control.database import open_database
from llmgw.control.listening import check_free, check_possible, resolve
from llmgw.control.services import Services
from llmgw.control.told_files import tell
from llmgw.core.config import ServerConfig, load_server_config
from llmgw.core.errors import Conflict, LlmgwError, Unavailable
from llmgw.core.jsonlog import setup as setup_log
from llmgw.core.layout import ServerLayout
from llmgw.core.sockets import listen_unix
from llmgw.router.front_proxies import ClientProxies
from llmgw.store.lock import acquire
from llmgw.web.access import Access, load_tokens
from llmgw.web.admin.app import admin_app
from llmgw.web.public import public_app
from llmgw.web.serve import open_tcp
from llmgw.web.serve import serve as serve_app

log = logging.getLogger(__name__)

DISK_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
"""What a disk says that takes nothing more: the operator's to mend, and no fault of the server's."""
START_GRACE_S = 10.0
"""A server told to end while it starts first takes over its routers, which it ends too, unless that takes longer."""


def run(config_path: Path) -> int:
    """Run a control plane until SIGINT or SIGTERM; raises LlmgwError with a sentence when it cannot start or go on."""
    config = load_server_config(config_path)
    layout = ServerLayout(data=config.data_path)
    identity.prepare(layout)
    lock = acquire(layout.lock)
    try:
        setup_log(layout.log / "server.log", process="server", level=config.log_level)
        trio.run(_main, config, layout)
    except ExceptionGroup as group:
        raise _reason(group, layout) from group
    finally:
        for path in (layout.admin_socket, layout.public_socket, layout.feed_socket):
            path.unlink(missing_ok=True)
        lock.release()
    return 0


def _reason(group: ExceptionGroup, layout: ServerLayout) -> LlmgwError:
    """The sentence for what ended the process tree: the first error made for people, else the first fault by name."""
    leaves = list(_leaves(group))
    for leaf in leaves:
        if isinstance(leaf, LlmgwError):
            log.error("the server ends: %s", leaf.message)
            return leaf
        if isinstance(leaf, OSError) and leaf.errno in DISK_FAULTS:
            log.error("the server ends: %s", leaf)
            return Unavailable(
                f"{leaf.filename or layout.data} cannot be written: {leaf.strerror}; routers and engines go on, and "
                "starting the server again once there is room takes them over"
            )
    log.critical("the server ends by a fault of its own; routers and engines go on", exc_info=group)
    return LlmgwError(
        f"the server met a fault of its own ({type(leaves[0]).__name__}: {leaves[0]}) and ended; routers and engines "
        "go on, and starting it again takes them over. server.log in the data directory says where it happened"
    )


def _leaves(error: Exception) -> Iterator[Exception]:
    if isinstance(error, ExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


async def _main(config: ServerConfig, layout: ServerLayout) -> None:
    certificate = ClientCertificate(config.client.tls, layout)
    access = Access(tokens=load_tokens(identity.admin_token(layout), config.admin_tokens), users=config.admin_users)
    # Addresses that are taken are told before a database starts for nothing.
    listen = config.address("listen")
    check_possible(await resolve(listen.host, listen.port))
    admin_tcp = _open_admin(config)
    for key in ("agents", "mirror"):
        address = config.address(key)
        check_free(await resolve(address.host, address.port))
    # Heard until the end: a second word to end must not cut the first short.
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as process:
            told, serving = trio.Event(), trio.Event()
            process.start_soon(_hear, signals, told, serving, process.cancel_scope)
            log.info("starting")
            await process.start(_hear_hang_ups, certificate)
            await _serve(config, layout, access, admin_tcp, certificate, told, serving)
            process.cancel_scope.cancel()
        layout.routing_cache.with_name(layout.routing_cache.name + ".lock").unlink(missing_ok=True)
        log.info("stopped")


async def _serve(
    config: ServerConfig,
    layout: ServerLayout,
    access: Access,
    admin_tcp: socket.socket,
    certificate: ClientCertificate,
    told: trio.Event,
    serving: trio.Event,
) -> None:
    """Serve until `told`; `serving` is set once everything is up."""
    async with open_database(config, layout) as database, trio.open_nursery() as control:
        services = Services(config, layout, database, certificate)
        certificate.tell_routers()
        tell(layout.client_proxies, ClientProxies(trusted=config.client.trusted_proxies))
        # Whatever else ends this process, clients notice nothing: only the operator's word ends the routers too.
        services.routers.outlive = True
        await control.start(services.run)
        async with trio.open_nursery() as front:
            admin_unix = listen_unix(layout.admin_socket)
            public_unix = listen_unix(layout.public_socket)
            closing = trio.Event()
            async with trio.open_nursery() as doors:
                await doors.start(_serve_admin, services, access, (admin_unix, admin_tcp), closing)
                await doors.start(_serve_public, services, public_unix, closing)
                await front.start(services.routers.run)
                log.info("serving", extra={"port": services.routers.port})
                serving.set()
                await told.wait()
                log.info("stopping")
                services.routers.outlive = False
                closing.set()
            front.cancel_scope.cancel()
        control.cancel_scope.cancel()


async def _serve_admin(
    services: Services,
    access: Access,
    listeners: tuple[socket.socket, ...],
    closing: trio.Event,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    app = admin_app(services.plane, access)
    await serve_app(app, listeners, closing=closing, task_status=task_status)


async def _serve_public(
    services: Services,
    listener: socket.socket,
    closing: trio.Event,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    app = public_app(services.plane)
    await serve_app(app, [listener], closing=closing, task_status=task_status)


def _open_admin(config: ServerConfig) -> socket.socket:
    address = config.address("admin")
    try:
        return open_tcp(address)
    except OSError as error:
        raise Conflict(
            f"cannot listen on {address} (admin): {error.strerror}; stop the other program or choose another port"
        ) from error


async def _hear_hang_ups(
    certificate: ClientCertificate, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """SIGHUP looks at the certificate anew and tells routers and the log. Without TLS it ends the process, as any."""
    if not certificate.on:
        task_status.started()
        return
    with trio.open_signal_receiver(signal.SIGHUP) as signals:
        task_status.started()
        async for _ in signals:
            try:
                certificate.tell_routers()
            except OSError as error:
                # A full disk is no reason to end: routers follow what was written before.
                log.error("routers cannot be told of the certificate's files: %s", error)
            for problem in certificate.problems():
                log.warning("%s", problem)


async def _hear(signals: AsyncIterator[int], told: trio.Event, serving: trio.Event, starting: trio.CancelScope) -> None:
    """Set `told` at the first signal, and end a start that goes on for too long after it.

    Those that follow change nothing. They are no impatience: the kernel tells of a dead parent once for every thread
    that the parent had.
    """
    log.info("signal", extra={"signal": await anext(signals)})
    told.set()
    async with trio.open_nursery() as ending:
        ending.start_soon(_end_long_start, serving, starting)
        async for _ in signals:
            pass


async def _end_long_start(serving: trio.Event, starting: trio.CancelScope) -> None:
    with trio.move_on_after(START_GRACE_S):
        await serving.wait()
        return
    log.warning("told to end while it starts: it starts no further, and routers that run go on")
    starting.cancel()
