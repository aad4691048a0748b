"""`llmgw sim-fleet`: its command line, its one process, its exit codes."""

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import trio

from agent.lock import data_lock
from llmgw.api.client import AdminClient
from llmgw.api.problems import ClientError
from llmgw.api.targets import resolve
from llmgw.core import jsonlog
from llmgw.core.errors import InvalidInput, LlmgwError
from llmgw.sim.fleet.options import DEFAULT_PREFIX, FleetOptions, check_size
from llmgw.sim.fleet.service import run as run_fleet

NARRATOR = "llmgw sim-fleet"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The fleet's options."""
    parser.add_argument("--nodes", type=int, required=True, metavar="N", help="simulated nodes")
    parser.add_argument("--gpus", type=int, default=8, metavar="M", help="cards of each (default: %(default)s)")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="keeps the nodes' identities and log")
    parser.add_argument("--server", metavar="URL", help="admin API that gives join tokens, as for ctl")
    parser.add_argument("--token-file", metavar="FILE", help="file with the admin API's bearer token, over TCP")
    parser.add_argument("--tokens", type=Path, metavar="FILE", help="join tokens instead: TOKEN HOST:PORT a line")
    parser.add_argument("--host", default="127.0.0.1", help="where the replicas listen (default: %(default)s)")
    parser.add_argument("--port", type=int, default=0, help="their port; 0 takes a free one")
    parser.add_argument("--seed", type=int, default=0, help="of all chance")
    parser.add_argument("--prefix", default=DEFAULT_PREFIX, help="beginning of the nodes' names (default: %(default)s)")
    parser.add_argument("--steady", action="store_true", help="no slow node, no silent node, no worn card")


def run(args: argparse.Namespace) -> int:
    """Run the fleet until a signal; the exit code. Refusals go to stderr."""
    try:
        check_size(args.nodes, args.gpus)
        options = FleetOptions(
            nodes=args.nodes,
            cards=args.gpus,
            data=args.data.expanduser().absolute(),
            host=args.host,
            port=args.port,
            seed=args.seed,
            prefix=args.prefix,
            steady=args.steady,
            tokens=read_tokens(args.tokens) if args.tokens else (),
        )
        client = None if args.tokens else AdminClient(resolve(server=args.server, token_file=args.token_file))
        options.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        with data_lock(options.data / "lock"):
            jsonlog.setup(options.data / "log" / "fleet.log", process="sim-fleet")
            with _plain_errors():
                trio.run(run_fleet, options, client, _say)
    except InvalidInput as error:
        print(f"{NARRATOR}: {error.message}", file=sys.stderr)
        return 2
    except (LlmgwError, ClientError, OSError) as error:
        print(f"{NARRATOR}: {error}", file=sys.stderr)
        return 1
    return 0


def read_tokens(path: Path) -> tuple[tuple[str, str], ...]:
    """Join tokens with their agent ports: `TOKEN HOST:PORT` a line, or the command `ctl join-token` printed."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot read {path}: {error}", field="--tokens") from error
    found = [line.split()[-2:] for line in lines if line.strip()]
    for number, words in enumerate(found, 1):
        if len(words) != 2:
            raise InvalidInput(f"{path}:{number} is not TOKEN HOST:PORT", field="--tokens")
    return tuple((token, url) for token, url in found)


@contextlib.contextmanager
def _plain_errors() -> Iterator[None]:
    """The one error in the groups that nurseries made of it."""
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
