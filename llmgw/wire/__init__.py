"""The agent protocol's messages, generated from `proto/` by `proto/generate.py`. Do not edit."""
