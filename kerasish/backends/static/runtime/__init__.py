"""Executables: memory and records of a compiled plan, runs over rows, control flow."""
