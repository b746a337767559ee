"""The static engine: a traced step as one table of native records."""

from kerasish.backends.static.engine import Static as Static
