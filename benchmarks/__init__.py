"""Kerasish timed beside its peers: `python -m benchmarks` (see docs/benchmarks.md)."""
