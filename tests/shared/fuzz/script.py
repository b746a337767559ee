"""A program as a script that needs nothing of the tests: it runs on two engines and compares."""

from __future__ import annotations

from .programs import Program
from .run import Engine

TEXT = '''"""{title}"""

import os
import re

{environment}import numpy as np

import kerasish
from kerasish import config, layers, losses, metrics, ops, optimizers


def one(found):
    return found[0] if isinstance(found, (list, tuple)) else found


def natural(name):
    return [int(p) if p.isdigit() else p for p in re.split(r"(\\d+)", name)]


{source}

def data(rng, rows):
    return [{arrays}]


def run(backend, optimize="fast_run", threads=1):
    config.set_backend(backend)
    config.set_optimize(optimize)
    config.set_dtype_policy("float32")
    with config.using_threads(threads):
        model = build()
        x = data(np.random.default_rng({seed}), {total})
        x = x[0] if len(x) == 1 else x
        found = model.predict(x, batch_size={total}, verbose=0)
        found = list(found) if isinstance(found, list) else [found]
        ys = [target(t, y.shape, {seed} + k) for k, (t, y) in enumerate(zip({kinds!r}, found))]
        y = ys[0] if len(ys) == 1 else ys
        logs = model.fit(x, y, batch_size={rows}, epochs=1, shuffle=False, verbose=0{more}).history
        found += [np.asarray(logs[k]) for k in sorted(logs, key=natural)]
        found += [v.numpy() for v in (*model.variables, *model.optimizer.variables)]
        return found


def target(kind, shape, seed):
    rng = np.random.default_rng(seed + 1)
    kind = kind.removesuffix(" 3d").removesuffix(" logits")
    if kind in ("classes", "unit"):
        return rng.integers(0, shape[-1], shape[:-1] or shape).astype("int32")
    if kind == "onehot":
        return np.eye(shape[-1], dtype="float32")[rng.integers(0, shape[-1], shape[:-1])]
    if kind in ("binary", "bits"):
        return (rng.random(shape) < 0.5).astype("float32")
    if kind == "signs":
        return np.sign(rng.normal(size=shape)).astype("float32")
    if kind == "positive":
        return np.abs(rng.normal(size=shape)).astype("float32")
    return rng.normal(size=shape).astype("float32")


for k, (a, b) in enumerate(zip(run("eager"), run({engine}))):
    a, b = np.asarray(a, "float64"), np.asarray(b, "float64")
    apart = np.abs(a - b).max(initial=0.0)
    print(k, a.shape, "largest difference", apart, "of", np.abs(a).max(initial=0.0))
'''


def script_of(program: Program, engine: Engine, title: str = "") -> str:
    """Return the text of a script that runs a program eagerly and on `engine`, and compares."""
    environment = "" if engine.onednn else 'os.environ["KERASISH_ONEDNN"] = "off"\n'
    if not engine.native:
        title += (
            "\nThe graph interpreter: make `CompiledPlan` in backends/static raise ImportError."
        )
    if engine.loops:
        title += "\nArrays of any size by loops: `loops_of_any_size` in tests/shared."
    arrays = ", ".join(
        f"rng.integers(0, {f.high}, (rows, *{f.sizes!r})).astype({f.dtype!r})"
        if f.high
        else f"rng.uniform(-1, 1, (rows, *{f.sizes!r})).astype({f.dtype!r})"
        for f in program.feeds
    )
    more = ""
    if program.weights == "sample":
        more = (
            f", sample_weight=np.random.default_rng({program.seed + 2})"
            f".integers(0, 3, {program.total}).astype('float32')"
        )
    return TEXT.format(
        title=title, environment=environment, source=program.source(), arrays=arrays,
        seed=program.seed, total=program.total, rows=program.rows, more=more,
        kinds=[g.targets for g in program.goals],
        engine=f"{engine.backend!r}, {engine.optimize!r}, {engine.threads}",
    )  # fmt: skip
