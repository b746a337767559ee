"""The static engine: a traced step as one table of native records."""
