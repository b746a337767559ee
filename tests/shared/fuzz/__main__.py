"""`python -m fuzz` from tests/shared; `python -m tests.fuzz` from the root of a checkout."""

from .campaign import main

raise SystemExit(main())
