"""Compares what engines give: equal up to rounding, or a disagreement with names and numbers."""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Sequence

import numpy as np

from .noise import jittered
from .programs import Program
from .run import EAGER, Engine, Found, run

# What passes without a further look, as shares of an element and of its tensor's largest number.
RELATIVE, OF_LARGEST, ABSOLUTE = 1e-4, 1e-5, 1e-6
# Else: how many times the spread of runs that round at random. 4 runs see about half of the range.
RUNS, TIMES = 4, 12.0


@dataclasses.dataclass
class Verdict:
    """What came out for a program on some engines.

    Attributes:
        kind: "equal", "refused" (all engines refuse it), "disagreement" or "crash".
        engine: the engine concerned.
        text: the quantities that differ, or the error.
        noisy: how many quantities were judged by the spread of runs that round at random.
    """

    kind: str
    engine: str = ""
    text: str = ""
    noisy: int = 0

    @property
    def bad(self) -> bool:
        return self.kind in ("disagreement", "crash")


def check(
    program: Program, engines: Sequence[Engine], saved: bool = False, gradients: bool = True,
    whole: bool = True,
) -> Verdict:  # fmt: skip
    """Return the verdict on a program: each engine against the eager one."""
    expected, refusal = _attempt(program, EAGER, False, gradients, whole)
    noisy = 0
    for engine in engines:
        found, error = _attempt(program, engine, saved, gradients, whole)
        if expected is None or found is None:
            if (expected is None) == (found is None):
                continue
            who = EAGER.name if expected is None else engine.name
            return Verdict("crash", who, refusal if expected is None else error)
        verdict = compare(program, expected, found, engine, gradients, whole)
        noisy += verdict.noisy
        if verdict.bad:
            return verdict
    if expected is None:
        return Verdict("refused", "", refusal)
    return Verdict("equal", noisy=noisy)


def _attempt(
    program: Program, engine: Engine, saved: bool, gradients: bool, whole: bool
) -> tuple[Found | None, str]:
    try:
        return run(program, engine, saved, gradients, whole), ""
    except Exception as error:  # noqa: BLE001 - compared with what other engines raise
        lines = traceback.format_exception(error)
        return None, f"{type(error).__name__}: {error}\n{''.join(lines[-4:])}"


def compare(
    program: Program, expected: Found, found: Found, engine: Engine, gradients: bool = True,
    whole: bool = True,
) -> Verdict:  # fmt: skip
    """Return the verdict on what an engine gave."""
    if list(expected) != list(found):
        odd = sorted(set(expected) ^ set(found))
        return Verdict("disagreement", engine.name, f"other names: {odd[:6]}")
    forms = [n for n in expected if _form(expected[n]) != _form(found[n])]
    if forms:
        told = [f"{n}: {_form(expected[n])} and {_form(found[n])}" for n in forms[:4]]
        return Verdict("disagreement", engine.name, f"other shapes or dtypes: {told}")
    suspects = [n for n in expected if excess(expected[n], found[n]) > 1]
    if not suspects:
        return Verdict("equal")
    if _is_undefined(program, suspects, expected, found):
        return Verdict("equal", noisy=len(suspects))
    spreads = noise_of(program, expected, gradients, whole)
    lines, apart = [], []
    for name in suspects:
        times = excess(expected[name], found[name], spreads.get(name))
        if times > 1:
            apart.append(name)
            lines.append(_told(name, expected[name], found[name], times))
    if lines and not _have_diverged(apart, expected, found):
        return Verdict("disagreement", engine.name, "\n".join(lines[:8]), len(suspects))
    return Verdict("equal", noisy=len(suspects))


# Metrics that count how many values exceed thresholds.
THRESHOLDS = tuple(
    f"metrics.{name}"
    for name in (
        "AUC", "Precision", "Recall", "Sensitivity", "Specificity", "TruePositives",
        "TrueNegatives", "FalsePositives", "FalseNegatives", "BinaryAccuracy", "F1Score", "FBeta",
    )
)  # fmt: skip


def _is_undefined(program: Program, suspects: list[str], expected: Found, found: Found) -> bool:
    """Return whether numbers differ that no engine defines.

    These are float16 values that overflow or vanish (engines that compute halves in float32 keep
    what is beyond 65504 or below 6e-8), correlations with a constant: 0 / 0, up to the rounding of
    a mean, and metrics that compare with thresholds what 16 bits round.
    """
    if program.policy == "mixed_float16" or "mixed_float16" in program.source():
        values = {name: np.abs(_wide(expected[name])) for name in suspects}
        beyond = {name: ~(v <= 65504) for name, v in values.items()}
        # Training goes on from such values; all other numbers before it must still agree.
        kept = [n for n in suspects if n.startswith(("forward[", "gradients"))]
        if any(over.any() for over in beyond.values()):
            return all(_agree_roughly(expected[n], found[n], ~beyond[n]) for n in kept)
    correlated = any("Correlation" in m for goal in program.goals for m in goal.metrics)
    rest = [n for n in suspects if "logs" not in n]
    counted = any(m.startswith(THRESHOLDS) for goal in program.goals for m in goal.metrics)
    halves = program.policy != "float32" or "mixed_" in program.source()
    if counted and halves and not rest:
        return max(float(np.max(_distance(expected[n], found[n]))) for n in suspects) < 0.05
    return (
        correlated and not rest and all(np.max(np.abs(_wide(expected[n]))) < 1e-5 for n in suspects)
    )


def _agree_roughly(a: np.ndarray, b: np.ndarray, where: np.ndarray) -> bool:
    """Return whether two arrays are equal there but for the rounding of float16."""
    x, y = _wide(a)[where], _wide(b)[where]
    largest = float(np.max(np.abs(x), initial=0.0))
    return bool(np.allclose(x, y, rtol=0.02, atol=0.02 * largest))


def _have_diverged(suspects: list[str], expected: Found, found: Found) -> bool:
    """Return whether training ended in NaN or Inf on both engines, and nothing before it differs.

    Sums that overflow give one or the other, by the order of their terms, or stay just below.
    """
    if not all(name.startswith("more") for name in suspects):
        return False
    losses = [n for n in expected if n.startswith("more logs") and expected[n].size]
    if any(not np.isfinite(_wide(f[n])).any() for n in losses for f in (expected, found)):
        return all(
            any(not np.isfinite(_wide(f[n])).all() for n in losses) for f in (expected, found)
        )
    for name in suspects:
        a, b = _wide(expected[name]), _wide(found[name])
        apart = ~((a == b) | (np.isnan(a) & np.isnan(b)))
        if np.isfinite(a[apart]).any() or np.isfinite(b[apart]).any():
            return False
    return True


def noise_of(
    program: Program, expected: Found, gradients: bool = True, whole: bool = True
) -> Found:
    """Return by how much each number moves when the eager engine rounds at random; inf: not at all
    the same kind of number."""
    spreads = {name: np.zeros(np.shape(a)) for name, a in expected.items()}
    for seed in range(RUNS):
        with jittered(seed):
            moved, _ = _attempt(program, EAGER, False, gradients, whole)
        for name, base in expected.items():
            if moved is None or name not in moved or _form(moved[name]) != _form(base):
                spreads[name][...] = np.inf
                continue
            spreads[name] = np.maximum(spreads[name], _distance(base, moved[name]))
    return spreads


def excess(a: np.ndarray, b: np.ndarray, spread: np.ndarray | None = None) -> float:
    """Return by how many times two arrays differ more than they may; <= 1: equal."""
    if a.size == 0:
        return 0.0
    exact = np.abs(_wide(a))
    finite = exact[np.isfinite(exact)]
    largest = float(finite.max()) if finite.size else 0.0
    share = {"float16": 30.0, "bfloat16": 200.0}.get(str(a.dtype), 1.0)
    allowed = (
        share * (RELATIVE * np.nan_to_num(exact, posinf=0.0) + OF_LARGEST * largest) + ABSOLUTE
    )
    if spread is not None:
        # A tensor as noisy as its noisiest element: a sum's terms may meet anywhere in it.
        worst = float(np.max(spread, initial=0.0))
        allowed = allowed + TIMES * np.maximum(spread, 0.25 * worst)
    with np.errstate(all="ignore"):
        times = _distance(a, b) / allowed
    return float(np.max(np.nan_to_num(times, nan=0.0, posinf=np.inf)))


def _distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return |a - b|; 0 where both are the same NaN or infinity, inf where one alone is."""
    x, y = _wide(a), _wide(b)
    with np.errstate(all="ignore"):
        apart = np.abs(x - y)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    return np.where(same, 0.0, np.where(np.isfinite(apart), apart, np.inf))


def _wide(a: np.ndarray) -> np.ndarray:
    return np.asarray(a).astype("float64")


def _form(a: np.ndarray) -> tuple[tuple[int, ...], str]:
    return tuple(np.shape(a)), str(a.dtype)


def _told(name: str, a: np.ndarray, b: np.ndarray, times: float) -> str:
    at = int(np.argmax(np.nan_to_num(_distance(a, b), posinf=1e300)))
    place = tuple(int(i) for i in np.unravel_index(at, np.shape(a)))
    return (
        f"{name}{list(place)}: {a.ravel()[at]!r} and {b.ravel()[at]!r} ({times:.3g} times allowed)"
    )
