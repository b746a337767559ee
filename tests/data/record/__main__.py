"""Record facts from other libraries again: `python -m tests.data.record [--check] [part [words]]`.

Run from the repository's root by a Python that has Keras 3.15 with JAX and PyTorch. The
parts `augmentation` and `preprocessing` need TensorFlow as well, and are left as they are without
it; `generator` needs Pillow. Without a part, all are recorded. With words, `layers` records cases
without facts, and those whose names hold one of the words.

With `--check`, the facts are recorded in a temporary copy and compared with those here, which stay
as they are: whole numbers and words must be equal, other numbers up to `facts.AGAIN`.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
TENSORFLOW = ("augmentation", "preprocessing")
# PyTorch cannot compute some cases of a part; the one after it adds them.
COMPLETED = {"layers": ["layers", "layers_by_jax"]}


def main(given: list[str]) -> int:
    """Run each part in a process of its own; return how many of them failed or differ."""
    parts = sorted(p.stem for p in HERE.glob("*.py") if p.stem != "__main__")
    checking = given[:1] == ["--check"]
    given = given[checking:]
    if given and given[0] not in parts:
        print(f"{given[0]!r} is not a part; the parts are {', '.join(parts)}", file=sys.stderr)
        return 2
    chosen = COMPLETED.get(given[0], given[:1]) if given else parts
    if not checking:
        return record(ROOT, chosen, given[1:])
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in ("data", "shared"):
            shutil.copytree(ROOT / "tests" / name, root / "tests" / name)
        failed = record(root, chosen, given[1:])
        return failed + compare(root / "tests" / "data")


def record(root: Path, parts: list[str], words: list[str]) -> int:
    """Record parts in the checkout at `root`; return how many of them failed."""
    path = os.pathsep.join([str(root / "tests" / "shared"), os.environ.get("PYTHONPATH", "")])
    failed = []
    for part in parts:
        if part in TENSORFLOW and importlib.util.find_spec("tensorflow") is None:
            print(f"{part}: left as it is, for TensorFlow is not installed here")
            continue
        print(f"--- {part}", flush=True)
        own = words if part == parts[0] else ()  # the later part records what is left
        command = [sys.executable, "-m", f"tests.data.record.{part}", *own]
        done = subprocess.run(command, cwd=root, env={**os.environ, "PYTHONPATH": path})
        if done.returncode:
            failed.append(part)
    print(f"failed: {', '.join(failed)}" if failed else "all recorded")
    return len(failed)


def compare(folder: Path) -> int:
    """Print how the facts in a folder differ from those here; return how many files do."""
    sys.path.insert(0, str(ROOT / "tests" / "shared"))
    import facts

    differ = 0
    for path in sorted(HERE.parent.iterdir()):
        if path.suffix not in (".npz", ".json"):
            continue
        found = facts.differences(path, folder / path.name)
        print(f"{path.name}: {'; '.join(found[:5]) if found else 'the same'}")
        differ += bool(found)
    return differ


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
