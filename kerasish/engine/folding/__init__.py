"""Folded functions: a recursive Python function runs for many structures, call by call."""
