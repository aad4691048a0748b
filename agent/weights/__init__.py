"""Weights on a node: brought from the mirror once, whoever waits for them, and kept."""
