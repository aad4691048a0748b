"""The gRPC side of the control plane: the bridge, sessions of nodes, translation between wire and core."""
