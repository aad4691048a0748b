"""Clusters one has a name for, in the profiles file `ctl` reads too. A write replaces the file as a whole."""

import os
import tempfile
from collections.abc import Container, Mapping
from pathlib import Path

import msgspec

from llmgw.api.problems import Usage
from llmgw.api.targets import PROFILES, Profile, Profiles, ServerTarget, parse_server, resolve
from llmgw.core.errors import InvalidInput


def profiles_path(environ: Mapping[str, str] | None = None) -> Path:
    """Where the profiles file is, or would be."""
    environ = os.environ if environ is None else environ
    home = Path(environ.get("HOME") or "~").expanduser()
    return Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / PROFILES


def read_profiles(path: Path) -> Profiles:
    """The profiles at `path`, none when it is not there; raises Usage."""
    if not path.exists():
        return Profiles()
    # YAML costs 20 ms to import; only those with a profile file pay it.
    from llmgw.core.yamlfile import read_yaml

    try:
        return read_yaml(path, Profiles)
    except InvalidInput as error:
        raise Usage(error.message) from error


def add_profile(path: Path, name: str, profile: Profile) -> Profiles:
    """Write `profile` under `name`, in place of one of that name; raises Usage for a server that is none."""
    parse_server(profile.server, source=name)
    before = read_profiles(path)
    after = msgspec.structs.replace(before, servers={**before.servers, name: profile})
    write_profiles(path, after)
    return after


def remove_profile(path: Path, name: str) -> Profiles:
    """Take `name` out, as the chosen one too; raises Usage when it is not there."""
    before = read_profiles(path)
    if name not in before.servers:
        raise Usage(f"no cluster is called {name[:60]!r} in {path}")
    servers = {known: profile for known, profile in before.servers.items() if known != name}
    after = msgspec.structs.replace(before, servers=servers, current="" if before.current == name else before.current)
    write_profiles(path, after)
    return after


def write_profiles(path: Path, profiles: Profiles) -> None:
    """Replace the profiles file at once, readable by its owner; raises Usage."""
    import yaml

    text = yaml.safe_dump(msgspec.to_builtins(profiles), sort_keys=False, allow_unicode=True)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(text)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise Usage(f"{path}: {error.strerror or error}") from error


def target_of(profile: Profile) -> ServerTarget:
    """The server a profile means; raises Usage."""
    return resolve(server=profile.server, token_file=profile.token_file or None, environ={})


def context_name(target: ServerTarget, path: Path | None = None) -> str:
    """What the header calls `target`: its profile's name, or where it is, in full where another has the short name."""
    taken: Container[str] = ()
    try:
        profiles = read_profiles(path or profiles_path())
        for name, profile in profiles.servers.items():
            known = parse_server(profile.server, source=name)
            if (known.socket, known.host, known.port) == (target.socket, target.host, target.port):
                return name
        taken = profiles.servers
    except Usage:
        pass
    if target.socket is not None:
        short = target.socket.parent.name or str(target.socket)
    else:
        short = f"{target.host}:{target.port}"
    return str(target) if short in taken else short
