"""Engines that the agent installs: an environment of their own for each version, built by uv, checked on a card."""
