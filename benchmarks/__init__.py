"""Kerasish timed against its peers: `python -m benchmarks` (see docs/benchmarks.md)."""
