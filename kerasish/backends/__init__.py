"""Engines that run what `ops` describes: each folder is one way to compute."""
