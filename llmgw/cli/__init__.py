"""Argument parsing and output; loads a command's code only when that command runs."""
