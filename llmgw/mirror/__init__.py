"""Weights for the cluster: fetched once from where they are published, checked, and served to the nodes."""
