"""Steps compiled without plans in memory: read from files, or compiled and saved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import kerasish
from kerasish import backends, ops
from kerasish.backends import trust
from kerasish.backends.static import engine
from kerasish.backends.static.lowering import saved_plans
from kerasish.backends.static.lowering.compiled_plan import CompiledPlans
from kerasish.backends.static.lowering.saved_plans import SavedPlans

X = np.random.default_rng(0).normal(size=(64, 48)).astype("float32")


def empty_folder(path: Path, monkeypatch: Any) -> Iterator[Path]:
    """Give an empty folder of plans, which the test uses; environments are hashed again."""
    monkeypatch.setenv("KERASISH_CACHE_DIR", str(path / "cache"))
    monkeypatch.delenv("KERASISH_STRICT_MEMORY", raising=False)
    monkeypatch.setattr(engine, "COMPILED_PLANS", CompiledPlans())
    monkeypatch.setattr(engine, "SAVED_PLANS", SavedPlans())
    monkeypatch.setattr(saved_plans, "DELAY", 0.0)
    monkeypatch.setattr(trust, "_warned", set())
    saved_plans._environment.cache_clear()
    yield path / "cache" / "plans"
    engine.SAVED_PLANS.wait()
    saved_plans._environment.cache_clear()


def mixed(x: Any) -> Any:
    """A product, loops, a sum: units of several kinds."""
    weights = np.full((48, 40), 0.01, "float32")
    y = ops.relu(ops.matmul(x, weights) + 1.0)
    return y / ops.sum(y, axis=1, keepdims=True), ops.max(y, axis=0)


def counted(function: Any) -> tuple[list[Any], tuple[int, int]]:
    """Call a function without plans in memory; return its results, and the plans (read, saved)."""
    plans = engine.SAVED_PLANS = SavedPlans()
    engine.COMPILED_PLANS.clear()
    results = kerasish.tree.flatten(function())
    plans.wait()
    return [np.array(r) for r in results], (plans.read, plans.saved)


def run(function: Any = mixed, *args: Any, **options: Any) -> tuple[list[Any], tuple[int, int]]:
    """Compile and run a step, as `counted`."""
    return counted(lambda: backends.get("static").compile(function, **options)(*(args or (X,))))


def same(a: Any, b: Any) -> bool:
    """Return whether arrays are equal bit by bit."""
    return [x.tobytes() for x in a] == [y.tobytes() for y in b]


def only_file(folder: Path) -> Path:
    """Return the one plan in a folder."""
    (path,) = folder.iterdir()
    return path
