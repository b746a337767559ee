"""Random programs on all engines: python -m tests.fuzz --seeds 0:10000 --jobs 2."""

import os
import pathlib
import sys

os.environ.setdefault("KERASISH_FULL_TRACEBACKS", "1")  # for its reports, before the import
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "shared"))

from fuzz.campaign import main

raise SystemExit(main())
