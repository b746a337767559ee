"""Graphs of layers: Input, Function, their configs, and preprocessing on the host."""
