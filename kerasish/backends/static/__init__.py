"""The static engine: compiles a traced step to one table of native records."""

from kerasish.backends.static.engine import Static as Static
