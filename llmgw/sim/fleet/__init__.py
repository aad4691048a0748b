"""A fleet of simulated nodes in one process: the real protocol, made-up machines, labelled as simulated."""
