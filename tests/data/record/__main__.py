"""Record facts from other libraries again: `python -m tests.data.record [part [words]]`.

Run from the repository's root by a Python that has Keras 3.15 with JAX and PyTorch. kerasish is
needed by the part `ops` alone. The parts `augmentation` and `preprocessing` need TensorFlow as
well. Without a part, all are recorded. With words, `layers` records cases without facts, and
those whose names hold one of the words.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
TENSORFLOW = ("augmentation", "preprocessing")


def main(given: list[str]) -> int:
    """Run each part in a process of its own; return how many of them failed."""
    parts = sorted(p.stem for p in HERE.glob("*.py") if p.stem != "__main__")
    if given and given[0] not in parts:
        print(f"{given[0]!r} is not a part; the parts are {', '.join(parts)}", file=sys.stderr)
        return 2
    path = os.pathsep.join([str(ROOT / "tests" / "shared"), os.environ.get("PYTHONPATH", "")])
    failed = []
    for part in given[:1] or parts:
        if part in TENSORFLOW and importlib.util.find_spec("tensorflow") is None:
            print(f"{part}: left as it is, for TensorFlow is not installed here")
            continue
        print(f"--- {part}", flush=True)
        command = [sys.executable, "-m", f"tests.data.record.{part}", *given[1:]]
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path})
        if done.returncode:
            failed.append(part)
    print(f"failed: {', '.join(failed)}" if failed else "all recorded")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
