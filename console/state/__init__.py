"""What the console knows, without a screen: immutable states, what changed between two, and what follows from them."""
