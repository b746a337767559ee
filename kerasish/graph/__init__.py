"""Graphs of ops, independent of devices: shape inference, tracing, passes, memory plans."""
