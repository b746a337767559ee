"""The runtime: executables with memory and records, runs over many batches, control flow."""
