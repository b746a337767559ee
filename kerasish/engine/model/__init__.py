"""Model, Sequential, and what a whole model can do: summary, export, state tree."""
