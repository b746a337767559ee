"""Recurrent layers: cells, the loop over time, and the layers that join the two."""
