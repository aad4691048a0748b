"""Fixtures every test may use. They live in `tests/support/`; this file only names them."""

pytest_plugins = ["tests.support.postgres", "tests.support.clusters", "tests.support.smollm2", "tests.support.passes"]
