"""Moves files over HTTP into a directory: what the mirror and the agents share. Knows neither of them."""
