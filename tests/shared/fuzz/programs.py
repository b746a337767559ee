"""A whole training program as data: lines of code about values, and the data it trains on.

A program is what a seed gives, or what remains of it when it is shrunk. Its source text is the one
thing that runs: here, and in the script that is printed.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Feed:
    """An input: the sizes of one row (as declared and as they are), and what numbers it holds."""

    name: str
    declared: tuple[Any, ...]
    sizes: tuple[int, ...]
    dtype: str = "float32"
    high: int = 0  # integers below it; 0: real numbers
    blank: bool = False  # whether some steps are zeros, for masks

    def line(self) -> str:
        shape = f"{self.declared!r}, dtype={self.dtype!r}"
        return f"{self.name} = layers.Input({shape}, name={self.name!r})"

    def array(self, rng: np.random.Generator, rows: int) -> np.ndarray:
        shape = (rows, *self.sizes)
        if self.high:
            return rng.integers(0, self.high, shape).astype(self.dtype)
        x = rng.uniform(-1, 1, shape).astype(self.dtype)
        if self.blank and len(shape) > 2:
            x[rng.random(shape[:2]) < 0.3] = 0
        return x


@dataclasses.dataclass(frozen=True)
class Step:
    """One value: a call of a layer, or of ops, on the values before it.

    Args:
        name: of the value.
        code: an expression with {0}, {1} ... in the places of the values.
        of: the values that it reads.
        layer: the expression that makes its layer, which `code` calls as {layer}.
        like: the step whose layer is used again.
        before: text that defines what the expression needs (a class).
    """

    name: str
    code: str
    of: tuple[str, ...]
    layer: str = ""
    like: str = ""
    before: str = ""

    def lines(self) -> list[str]:
        holder = f"layer_{self.like or self.name}"
        created = [f"{holder} = {self.layer}"] if self.layer and not self.like else []
        call = self.code.format(*self.of, layer=holder)
        return [*created, f"{self.name} = {call}"]


@dataclasses.dataclass(frozen=True)
class Goal:
    """An output with its loss: the value, the loss's code, its kind of targets, its metrics."""

    value: str
    loss: str
    targets: str
    metrics: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Program:
    """All of a program: what is built, compiled and trained."""

    seed: int
    feeds: tuple[Feed, ...]
    steps: tuple[Step, ...]
    goals: tuple[Goal, ...]
    optimizer: str = "optimizers.SGD(0.1)"
    policy: str = "float32"
    rows: int = 4
    last: int = 1
    weights: str = ""  # "", "sample" or "class"
    by_fit: bool = False
    options: tuple[tuple[str, str], ...] = ()  # more arguments of compile

    def source(self) -> str:
        """Return the text of a function `build()` that gives the compiled model."""
        befores = list(dict.fromkeys(s.before for s in self.steps if s.before))
        body = [
            f"kerasish.utils.set_random_seed({self.seed})",
            *([f"config.set_dtype_policy({self.policy!r})"] if self.policy != "float32" else []),
            *(feed.line() for feed in self.feeds),
            *(line for step in self.steps for line in step.lines()),
            f"model = kerasish.Model({names(f.name for f in self.feeds)}, "
            f"{names(g.value for g in self.goals)})",
            *self.compile_lines(),
            "return model",
        ]
        return "\n".join([*befores, "def build():", *(f"    {line}" for line in body), ""])

    def compile_lines(self) -> list[str]:
        losses = ", ".join(g.loss for g in self.goals)
        metrics = ", ".join(f"[{', '.join(g.metrics)}]" for g in self.goals)
        if len(self.goals) == 1:
            given = f"loss={losses}, metrics={metrics}"
        else:
            given = f"loss=[{losses}], metrics=[{metrics}]"
        more = "".join(f", {name}={value}" for name, value in self.options)
        return [f"model.compile({self.optimizer}, {given}{more})"]

    @property
    def total(self) -> int:
        """Rows of data: two whole batches and a short one."""
        return 2 * self.rows + self.last

    def inputs(self) -> list[np.ndarray]:
        rng = np.random.default_rng(self.seed)
        return [feed.array(rng, self.total) for feed in self.feeds]


def names(found: Any) -> str:
    """Return names as a list in code, a single one as itself."""
    listed = list(found)
    return listed[0] if len(listed) == 1 else f"[{', '.join(listed)}]"


def targets(kind: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Return what an output of `shape` is trained to give, of a loss's kind."""
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
