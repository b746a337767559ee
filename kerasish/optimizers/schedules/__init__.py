"""Learning rates that follow the step."""
