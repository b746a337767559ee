"""Training: the step, compiled steps, the loop around them, losses of several outputs."""
