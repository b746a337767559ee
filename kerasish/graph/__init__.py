"""The static side, free of devices: values without numbers, traces, the graph and its passes."""
