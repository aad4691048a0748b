"""The clusters that acceptance tests share, one with the real model and one with the simulated engine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import DemoCluster, running_demo


@pytest.fixture(scope="session")
def real_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoCluster]:
    """A demo with SmolLM2 on llama.cpp. Its directory has a space in it, on purpose."""
    data = tmp_path_factory.mktemp("real") / "a data dir"
    with running_demo(data, model="smollm2") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def sim_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoCluster]:
    """A demo with the simulated engine, under a path too long for a unix socket's name."""
    data = tmp_path_factory.mktemp("sim") / ("long-" * 30)
    with running_demo(data, model="sim") as cluster:
        yield cluster


def log_text(data: Path, name: str) -> str:
    """A log of the cluster."""
    return (data / "log" / name).read_text(errors="replace")
