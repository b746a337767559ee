"""Lowering: each graph node becomes a unit of native code, or of a NumPy kernel."""
