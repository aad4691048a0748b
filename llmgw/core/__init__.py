"""Vocabulary and decisions, pure and synchronous: no I/O, no clock, no randomness; now is an argument."""
