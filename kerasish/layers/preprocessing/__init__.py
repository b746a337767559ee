"""Layers that make numbers of raw data: lookups, hashing, text, bins, spectrograms."""
