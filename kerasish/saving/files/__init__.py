"""Files on disk: atomic replacement, locks, checksums, and the sources and sinks of arrays."""
