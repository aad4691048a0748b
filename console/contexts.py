"""Which cluster the console is at, and the others one has a name for."""

from collections.abc import Mapping
from pathlib import Path

from console.client.contexts import (
    add_profile,
    context_name,
    profiles_path,
    read_profiles,
    remove_profile,
    target_of,
)
from llmgw.api.problems import Usage
from llmgw.api.targets import Profile, ServerTarget


class Contexts:
    """Names of clusters, from the profiles file, read when first asked for."""

    def __init__(self, target: ServerTarget, path: Path | None = None) -> None:
        self._path = path or profiles_path()
        self._target = target
        self._name: str | None = None
        self._names: list[str] | None = None

    @property
    def target(self) -> ServerTarget:
        """The cluster one is at."""
        return self._target

    @target.setter
    def target(self, target: ServerTarget) -> None:
        self._target, self._name = target, None

    @property
    def name(self) -> str:
        """What the header calls it."""
        if self._name is None:
            self._name = context_name(self._target, self._path)
        return self._name

    def names(self) -> list[str]:
        """Clusters one has a name for; none when the file cannot be read."""
        if self._names is None:
            try:
                self._names = sorted(read_profiles(self._path).servers)
            except Usage:
                self._names = []
        return self._names

    def find(self, name: str) -> ServerTarget:
        """The cluster of that name; raises Usage."""
        profiles = read_profiles(self._path)
        profile = profiles.servers.get(name)
        if profile is None:
            known = ", ".join(sorted(profiles.servers)) or "none; `:ctx add NAME SERVER` makes one"
            raise Usage(f"no cluster is called {name[:60]!r} in {self._path}; known are {known}")
        return target_of(profile)

    def profiles(self) -> Mapping[str, Profile]:
        """Every cluster of the file, by name; raises Usage."""
        return dict(sorted(read_profiles(self._path).servers.items()))

    def remove(self, name: str) -> None:
        """Forget a cluster's name; raises Usage."""
        remove_profile(self._path, name)
        self._names = None
        self._name = None

    def add(self, name: str, server: str, token_file: str = "") -> None:
        """Remember a cluster; raises Usage."""
        add_profile(self._path, name, Profile(server=server, token_file=token_file))
        self._names = None
        self._name = None
