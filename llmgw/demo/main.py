"""`llmgw demo`: a cluster of one on embedded parts, under one supervisor. When it ends, nothing of it is left running.

On a terminal the supervisor runs behind the console (`front`).

The process tree, from the outside in: signals; the server; the simulated fleet, if there is one; this machine's agent;
the steps that lead to READY; the fleet's visitors.
"""

import argparse
import fcntl
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import trio

from llmgw.api.problems import ClientError, Unreachable
from llmgw.core.errors import InvalidInput
from llmgw.demo import fleet, front, steps, visitors
from llmgw.demo.children import Child, ChildFailed, command
from llmgw.demo.files import HOST, DemoFiles, node_name, port_is_free
from llmgw.demo.fleet import FleetSize
from llmgw.demo.steps import DemoError

DEFAULT_DATA = Path("~/.local/share/llmgw/demo")
POLL_S = 0.1
"""How often the demo looks whether the next step may be taken."""
ATTACH_S = 120.0
"""Longest a second demo waits for the first one's model."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The demo's options."""
    parser.add_argument(
        "--data", type=_directory, default=DEFAULT_DATA, help="where everything lives (default: %(default)s)"
    )
    parser.add_argument("--port", type=int, default=8080, help="client API (default: %(default)s)")
    parser.add_argument("--admin-port", type=int, default=9090, help="admin API (default: %(default)s)")
    parser.add_argument("--no-console", action="store_true", help="print READY and stay in the foreground")
    parser.add_argument("--fleet", metavar="NODESxCARDS", help="add simulated nodes, as in 12x8; kept for later starts")
    parser.add_argument("--no-visitors", action="store_true", help="nobody asks the simulated models anything")
    parser.add_argument("--model", choices=sorted(steps.SERVES), default="smollm2", help="default: %(default)s")


def _directory(text: str) -> Path:
    """A directory's name; an empty one is a variable that was not set, and would mean the current directory."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty: name a directory")
    return Path(text)


def run(args: argparse.Namespace) -> int:
    """Run the demo until SIGINT or SIGTERM; the exit code."""
    for name, port in (("--port", args.port), ("--admin-port", args.admin_port)):
        if not 1 <= port <= 65535:
            print(f"llmgw demo: {name}: {port} is not a port: 1 to 65535", file=sys.stderr)
            return 2
    if args.port == args.admin_port:
        print(f"llmgw demo: --port and --admin-port are both {args.port}; they need two ports", file=sys.stderr)
        return 2
    try:
        asked = fleet.size_from(args.fleet) if args.fleet else None
    except InvalidInput as error:
        print(f"llmgw demo: {error.message}", file=sys.stderr)
        return 2
    files = DemoFiles(args.data.expanduser().absolute())
    try:
        files.prepare()
        lock = _lock(files)
    except OSError as error:
        print(f"llmgw demo: {files.data}: {error.strerror}; name another place with --data", file=sys.stderr)
        return 1
    if front.wanted(args):
        if lock is not None:
            os.close(lock)
        return front.run(files, args, runs=lock is None)
    if lock is None:
        return _attach(files, args)
    try:
        return trio.run(_demo, files, args, fleet.resolve_size(files, asked))
    finally:
        files.lock.unlink(missing_ok=True)
        os.close(lock)


def _lock(files: DemoFiles) -> int | None:
    """The demo's lock, or none while another demo on the directory holds it."""
    descriptor = os.open(files.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())
    return descriptor


def _attach(files: DemoFiles, args: argparse.Namespace) -> int:
    """A demo runs on this directory already: wait for its model and say where it is."""
    print(f"a demo runs on {files.data} already (pid {files.lock.read_text().strip()})", file=sys.stderr)
    return trio.run(_attached, files, args)


async def _attached(files: DemoFiles, args: argparse.Namespace) -> int:
    with trio.move_on_after(ATTACH_S):
        while True:
            found = await trio.to_thread.run_sync(_running, files, abandon_on_cancel=True)
            if found is not None:
                port, key = found
                if not await trio.to_thread.run_sync(
                    steps.answer, files, port, key, args.model, abandon_on_cancel=True
                ):
                    print(steps.ready_line(files, port, key, args.model), flush=True)
                    return 0
            await trio.sleep(POLL_S)
    print(f"it did not answer within {ATTACH_S:.0f} s", file=sys.stderr)
    return 1


def _running(files: DemoFiles) -> tuple[int, str] | None:
    """Client port and key of the running demo, once both are there."""
    try:
        routers = steps.client(files).status().routers
    except ClientError:
        return None
    key = files.read_key()
    return (routers[0].port, key) if routers and key else None


async def _demo(files: DemoFiles, args: argparse.Namespace, size: FleetSize | None) -> int:
    say = _narrator()
    for option, port in (("--port", args.port), ("--admin-port", args.admin_port)):
        if not port_is_free(port) and not files.server.lock.exists():
            say(f"{HOST}:{port} is in use by another program; choose a free port with {option}")
            return 1
    files.write_configs(port=args.port, admin_port=args.admin_port, ports=files.choose_ports(), node=node_name())
    told = trio.CancelScope()
    # Heard until the end: a second signal must not cut the stopping short.
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async with trio.open_nursery() as listening:
            listening.start_soon(_end_on_signal, signals, told)
            code = await _run(files, args, size, say, told)
            listening.cancel_scope.cancel()
    return code


async def _run(
    files: DemoFiles,
    args: argparse.Namespace,
    size: FleetSize | None,
    say: Callable[[str], None],
    told: trio.CancelScope,
) -> int:
    """Everything up until `told` is cancelled, then everything down; the exit code."""
    log = files.children_log
    server = Child("server", command("server", "-c", str(files.server_config)), log / "server.out", say)
    agent = Child("agent", command("agent", "-c", str(files.agent_config)), log / "agent.out", say)
    others = [agent]
    code = 0
    try:
        with told:
            async with trio.open_nursery() as nursery:
                await nursery.start(_supervised, nursery, server)
                if size is not None:
                    # Before anything else: a cluster that misses most of its nodes places nothing.
                    others.append(await _start_fleet(nursery, files, size, say))
                joined = files.agent.certificate.exists()
                if joined:
                    await nursery.start(_supervised, nursery, agent)
                await _until(steps.server_answers, files)
                if not joined:
                    await trio.to_thread.run_sync(steps.join_node, files, node_name())
                    await nursery.start(_supervised, nursery, agent)
                await _bring_up(files, args, say)
                if size is not None:
                    nursery.start_soon(_bring_up_fleet, files, args, size)
    except* (DemoError, ChildFailed, ClientError) as group:
        say(str(_first(group)))
        code = 1
    finally:
        with trio.CancelScope(shield=True):
            say("stopping: agent and engines, then routers, server and database")
            async with trio.open_nursery() as nursery:
                for child in others:
                    nursery.start_soon(child.stop)
            await server.stop()
    return code


async def _start_fleet(nursery: trio.Nursery, files: DemoFiles, size: FleetSize, say: Callable[[str], None]) -> Child:
    """The simulated fleet, which waits for the server and joins its nodes by itself."""
    fleet.keep_size(files, size)
    child = Child("fleet", fleet.fleet_command(files, size), files.children_log / "fleet.out", say)
    await nursery.start(_supervised, nursery, child)
    return child


async def _bring_up_fleet(files: DemoFiles, args: argparse.Namespace, size: FleetSize) -> None:
    """The fleet's models into the catalog, and visitors that ask them."""
    models = fleet.models(size)
    await _retrying(steps.ensure_fleet_models, files, models)
    if not args.no_visitors:
        key = await _retrying(steps.visitors_key, files, visitors.KEY_NAME)
        assert isinstance(key, str)
        served = [model.name for model in models if model is not fleet.UNPLACED]
        if served:
            await visitors.run(args.port, key, served, steps.client_context() if steps.secured(files) else None)


async def _supervised(
    nursery: trio.Nursery, child: Child, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    await nursery.start(child.run)
    task_status.started()


async def _bring_up(files: DemoFiles, args: argparse.Namespace, say: Callable[[str], None]) -> None:
    """Model into the catalog, key, and the wait until the model answers."""
    await _retrying(steps.ensure_model, files, args.model)
    key = await _retrying(steps.ensure_key, files)
    assert isinstance(key, str)
    await _until_serving(files, args.model, say)
    while refused := await trio.to_thread.run_sync(
        steps.answer, files, args.port, key, args.model, abandon_on_cancel=True
    ):
        say(f"{args.model}: {refused}")
        if not await trio.to_thread.run_sync(steps.key_is_known, files, args.port, key, abandon_on_cancel=True):
            key = await _retrying(steps.new_key, files)
            assert isinstance(key, str)
        await trio.sleep(POLL_S)
    print(steps.ready_line(files, args.port, key, args.model), flush=True)


async def _until_serving(files: DemoFiles, model: str, say: Callable[[str], None]) -> None:
    """Wait for a replica: a request before there is one would be on record as failed."""
    told_at = float("-inf")
    while True:
        serves, state = await trio.to_thread.run_sync(steps.model_state, files, model, abandon_on_cancel=True)
        if serves:
            return
        if trio.current_time() - told_at >= 1.0:
            told_at = trio.current_time()
            say(state)
        await trio.sleep(POLL_S)


async def _retrying(step: Callable[..., object], *args: object) -> object:
    """A step that a restart of the server may interrupt: tried until it goes through or is refused."""
    while True:
        try:
            return await trio.to_thread.run_sync(step, *args, abandon_on_cancel=True)
        except Unreachable:
            await trio.sleep(POLL_S)


async def _until(condition: Callable[[DemoFiles], bool], files: DemoFiles) -> None:
    while not await trio.to_thread.run_sync(condition, files, abandon_on_cancel=True):  # noqa: ASYNC110 - another process's
        await trio.sleep(POLL_S)


async def _end_on_signal(signals: AsyncIterator[int], told: trio.CancelScope) -> None:
    async for _ in signals:
        told.cancel()


def _narrator() -> Callable[[str], None]:
    """Narration on stderr, a line only when it says something new."""
    last = ""

    def say(text: str) -> None:
        nonlocal last
        if text != last:
            last = text
            print(text, file=sys.stderr, flush=True)

    return say


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
