"""What the machine is. A figure that cannot be read is absent, never zero, and a reader that fails says so."""
