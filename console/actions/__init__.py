"""What the console can do about a row: a handler for each action of the registry that has a place on the screen."""
