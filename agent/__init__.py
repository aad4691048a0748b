"""The node agent: one a machine; it discovers, fetches, starts, watches and re-adopts engines."""
