"""Kills ranks of a training at random, and starts it again on another number of ranks.

Each start draws whether the ranks divide the optimizer's slots, too. As a program:
`rank_kills.py train FOLDER divided` (or `whole`) is the training; `rank_kills.py KILLS SEED FOLDER`
the campaign, which prints what it did.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import kerasish as keras
from kerasish import launch
from kerasish.ranks import current_group

ROOT = Path(__file__).parents[2]
SHARDS = 4


def train(folder: Path, divided: bool) -> None:
    """Train slowly, with a state after every batch; write the digest at the end."""
    import rank_models as models

    keras.distribution.initialize(timeout=60)
    keras.distribution.set_distribution(
        keras.distribution.DataParallel(shards=SHARDS, shard_optimizer=divided)
    )
    group = current_group()

    class Slow(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if (folder / "slow").exists():
                time.sleep(0.03)

    model = models.compiled("mlp")
    x, y = models.data(96)
    (folder / f"process-{group.rank}").write_text(str(os.getpid()))
    resume = keras.callbacks.Resume(folder / "states", every=1, seconds=None, background=False)
    history = model.fit(
        x, y, batch_size=16, epochs=4, verbose=0, callbacks=[Slow()], resume=resume,
        validation_split=0.2,
    )  # fmt: skip
    result = group.gather(models.digest(model, history))
    assert len(set(result)) == 1, result
    if group.rank == 0:
        (folder / "digest").write_text(result[0])


def start(ranks: int, folder: Path, divided: bool) -> subprocess.Popen[str]:
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    environment = {**os.environ, **launch.environment(99, {}, 1, root), "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'shared'}"
    command = [launch.find_mpiexec(), "-n", str(ranks), sys.executable, __file__]
    return subprocess.Popen(
        [*command, "train", str(folder), "divided" if divided else "whole"],
        env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def campaign(kills: int, seed: int, folder: Path) -> dict[str, Any]:
    """Return what was done: {"kills", "ranks", "digest"}.

    Raises:
        AssertionError: a training ended with other bits than the one that was not killed.
    """
    draw = random.Random(seed)
    whole = folder / "whole"
    whole.mkdir(parents=True)
    job = start(1, whole, False)
    output = job.communicate(timeout=120)[0]
    assert job.returncode == 0, output
    wanted = (whole / "digest").read_text()
    done, ranks_used, trainings = 0, [], 0
    while done < kills:
        cut = folder / f"cut-{trainings}"
        cut.mkdir()
        (cut / "slow").touch()
        trainings += 1
        while not (cut / "digest").exists():
            ranks, divided = draw.choice([1, 2, 4]), draw.random() < 0.5
            for path in cut.glob("process-*"):
                path.unlink()
            job = start(ranks, cut, divided)
            ranks_used.append(f"{ranks} divided" if divided else f"{ranks}")
            victim = cut / f"process-{draw.randrange(ranks)}"
            last = done >= kills
            deadline = time.monotonic() + 60
            while not last and job.poll() is None and time.monotonic() < deadline:
                if victim.exists() and victim.read_text():
                    time.sleep(draw.uniform(0.1, 1.2))
                    if job.poll() is None and not (cut / "digest").exists():
                        os.kill(int(victim.read_text()), signal.SIGKILL)
                        done += 1
                    break
                time.sleep(0.01)
            output = job.communicate(timeout=120)[0]
        assert (cut / "digest").read_text() == wanted, (seed, trainings, ranks_used, output)
    return {"kills": done, "trainings": trainings, "ranks": ranks_used, "digest": wanted}


if __name__ == "__main__":
    if sys.argv[1] == "train":
        train(Path(sys.argv[2]), sys.argv[3] == "divided")
    else:
        print(campaign(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
