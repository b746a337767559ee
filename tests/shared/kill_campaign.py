"""Kills a training at random moments, runs it again until it ends, and compares bit for bit."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import kerasish
from kerasish.saving.formats.state_file import read_state
from kerasish.saving.latest import check_complete

SCRIPT = Path(__file__).with_name("training_to_kill.py")


def start(folder, engine, mode, source, tell="at once"):
    folder.mkdir(exist_ok=True)
    environment = {
        **os.environ,
        "KERASISH_BACKEND": engine,
        "PYTHONPATH": str(Path(kerasish.__file__).parent.parent),
        "OMP_NUM_THREADS": "1",
        "TELL": tell,
    }
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), str(folder), mode, source],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def finish(process):
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return errors


def check_files(folder):
    """Return the number of files looked at; each must be whole."""
    seen = 0
    for path in (folder / "states").glob("state-*.safetensors"):
        read_state(str(path))
        seen += 1
    for path in (folder / "checkpoints").glob("[0-9]*.h5"):
        check_complete(str(path))
        seen += 1
    litter = [p.name for p in folder.rglob(".*kerasish-new")]
    assert len(litter) <= 2, litter  # one of the states, one of the checkpoints
    return seen


def campaign(folder, engine, mode, kills, seed=0, source="arrays", longest=0.25):
    """Return {"kills", "trainings", "files"} after this many kills.

    Raises:
        AssertionError: a training ended otherwise than without kills, or a file is damaged.
    """
    draw = random.Random(f"{seed} {engine} {mode} {source}")
    whole = folder / "whole"
    finish(start(whole, engine, mode, source))
    wanted = json.loads((whole / "result.json").read_text())
    counts = {"kills": 0, "trainings": 0, "files": 0, "in a save": 0}
    while counts["kills"] < kills or counts["trainings"] == 0:
        cut = folder / f"cut-{counts['trainings']}"
        while not (cut / "result.json").exists():
            tell = draw.choice(["at once", "later", "later"])
            process = start(cut, engine, mode, source, tell)
            reported = process.stdout.readline()
            if counts["kills"] >= kills:
                finish(process)
                continue
            time.sleep(draw.uniform(0.0, longest))
            process.kill()
            process.communicate()
            assert reported == "begun\n" or (cut / "result.json").exists()
            if process.returncode != 0:
                counts["kills"] += 1
            counts["files"] += check_files(cut)
            counts["in a save"] += any(cut.rglob(".*kerasish-new"))
        result = json.loads((cut / "result.json").read_text())
        wrong = [name for name in wanted if result[name] != wanted[name]]
        assert not wrong, f"{engine}, {mode}, {source}: {wrong} differ after kills in {cut}"
        counts["trainings"] += 1
    return counts


if __name__ == "__main__":
    import tempfile

    for engine in ("static", "eager"):
        for source in ("arrays", "dataset"):
            for mode in ("background", "sync"):
                with tempfile.TemporaryDirectory() as folder:
                    kills = int(sys.argv[1])
                    began = time.perf_counter()
                    counts = campaign(Path(folder), engine, mode, kills, source=source)
                    took = time.perf_counter() - began
                    print(engine, source, mode, counts, f"{took:.0f} s", flush=True)
