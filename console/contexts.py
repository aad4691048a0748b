"""Which cluster the console is at, the one it was started at, and the others one has a name for."""

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
        self._target = self._started = target
        self._name: str | None = None
        self._filed: frozenset[str] | None = None
        self._unfiled: Mapping[str, ServerTarget] | None = None

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
        """Clusters one can go to by name: those of the file, and the one the console was started at."""
        return sorted({*self._of_file(), *self.started()})

    def started(self) -> Mapping[str, ServerTarget]:
        """The cluster the console was started at, under what the header calls it; empty where the file has it."""
        if self._unfiled is None:
            name = context_name(self._started, self._path)
            self._unfiled = {} if self.in_file(name) else {name: self._started}
        return self._unfiled

    def in_file(self, name: str) -> bool:
        """Whether the file has that name; it has none when it cannot be read."""
        return name in self._of_file()

    def _of_file(self) -> frozenset[str]:
        if self._filed is None:
            try:
                self._filed = frozenset(read_profiles(self._path).servers)
            except Usage:
                self._filed = frozenset()
        return self._filed

    def find(self, name: str) -> ServerTarget:
        """The cluster of that name; raises Usage."""
        started = self.started().get(name)
        if started is not None:
            return started
        profiles = read_profiles(self._path)
        profile = profiles.servers.get(name)
        if profile is None:
            known = ", ".join(sorted({*profiles.servers, *self.started()})) or "none"
            where = f"in {self._path}; known are {known}; `:ctx add NAME SERVER` adds one"
            raise Usage(f"no cluster is called {name[:60]!r} {where}")
        return target_of(profile)

    def profiles(self) -> Mapping[str, Profile]:
        """Every cluster of the file, by name; raises Usage."""
        return dict(sorted(read_profiles(self._path).servers.items()))

    def remove(self, name: str) -> None:
        """Forget a cluster's name; raises Usage."""
        remove_profile(self._path, name)
        self._forget()

    def add(self, name: str, server: str, token_file: str = "") -> None:
        """Remember a cluster; raises Usage."""
        add_profile(self._path, name, Profile(server=server, token_file=token_file))
        self._forget()

    def _forget(self) -> None:
        self._name = self._filed = self._unfiled = None
