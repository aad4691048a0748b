"""The demo's small supervisor."""
