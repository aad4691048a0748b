"""The data plane: one process that authenticates, chooses, relays and counts. A follower of the feed."""
