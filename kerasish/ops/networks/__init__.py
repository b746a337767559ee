"""Ops of neural networks: attention, losses, normalization, recurrences."""
