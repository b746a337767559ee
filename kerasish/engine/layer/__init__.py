"""Layer and Operation: the call protocol, weights, losses and masks."""
