"""A program while it is written: each line is tried on shapes only, and kept if it is accepted."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np

import kerasish
from kerasish import config, layers, ops, optimizers

from .programs import Feed, Step

# What a line may raise that is no fault: arguments that do not fit what they are given.
REFUSALS = (ValueError, TypeError, NotImplementedError)
LARGEST = 400  # numbers of one row that a value may have
NAMESPACE = {
    "kerasish": kerasish, "layers": layers, "ops": ops, "optimizers": optimizers,
    "config": config, "np": np, "losses": kerasish.losses, "metrics": kerasish.metrics,
}  # fmt: skip


class Draft:
    """The values so far: symbolic tensors by name, and how often each is read."""

    def __init__(self, rng: np.random.Generator, faults: collections.Counter[str] | None = None):
        self.rng = rng
        self.feeds: list[Feed] = []
        self.steps: list[Step] = []
        self.values: dict[str, Any] = {}
        self.sizes: dict[str, dict[int, int]] = {}
        self.read: collections.Counter[str] = collections.Counter()
        self.space: dict[str, Any] = dict(NAMESPACE)
        self.faults = faults if faults is not None else collections.Counter()

    # --- choices ------------------------------------------------------------------------------

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def pick(self, many: Any) -> Any:
        many = list(many)
        return many[int(self.rng.integers(len(many)))]

    # --- values -------------------------------------------------------------------------------

    def feed(self, sizes: Any, dtype: str = "float32", high: int = 0, opened: bool = False) -> str:
        """Add an input of these sizes a row; `opened`: the first of several is declared None."""
        sizes = tuple(int(s) for s in sizes)
        declared = (None, *sizes[1:]) if opened and len(sizes) > 1 else sizes
        created = Feed(f"i{len(self.feeds)}", declared, sizes, dtype, high, self.chance(0.3))
        self.feeds.append(created)
        exec(created.line(), self.space)
        self.values[created.name] = self.space[created.name]
        return created.name

    def shape(self, name: str) -> tuple[Any, ...]:
        return tuple(self.values[name].shape)

    def dtype(self, name: str) -> str:
        return str(self.values[name].dtype)

    def floats(self, rank: int | None = None) -> list[str]:
        """Return the values that are real numbers, the latest last; of a rank, rows included."""
        return [
            n for n in self.values
            if "float" in self.dtype(n) and rank in (None, len(self.shape(n)))
        ]  # fmt: skip

    def recent(self, many: list[str]) -> str:
        """Return one of several values: mostly one of the latest."""
        return self.pick(many[-3:] if self.chance(0.8) else many)

    def add(self, code: str, of: Any, layer: str = "", like: str = "", before: str = "") -> str:
        """Try a step; return its value's name, "" where it is refused."""
        step = Step(f"v{len(self.steps)}", code, tuple(of), layer, like, before)
        space = dict(self.space)
        try:
            if before:
                exec(before, space)
            exec("\n".join(step.lines()), space)
            if self._fits(space[step.name]):
                self.space = space
                self.steps.append(step)
                self.values[step.name] = space[step.name]
                self.read.update(step.of)
                return step.name
        except REFUSALS:
            return ""
        except IndexError as error:
            if layer:  # an index of Python's own is a refusal, one inside a layer is a fault
                self.faults[f"IndexError: {layer}: {error}"[:300]] += 1
            return ""
        except Exception as error:  # noqa: BLE001 - counted, and shown by campaigns
            self.faults[f"{type(error).__name__}: {code} {layer}: {error}"[:300]] += 1
        return ""

    def _fits(self, value: Any) -> bool:
        if not hasattr(value, "shape") or not hasattr(value, "dtype"):
            return False
        shape = tuple(value.shape)
        if not shape or shape[0] is not None or "complex" in str(value.dtype):
            return False
        known = [s for s in shape[1:] if s is not None]
        return 0 < int(np.prod(known)) <= LARGEST and len(shape) < 7

    def leaves(self) -> list[str]:
        """Return the values that nothing reads."""
        return [n for n in self.values if not self.read[n]]


def one(found: Any) -> Any:
    """Return the first result of a layer that gives several."""
    return found[0] if isinstance(found, (list, tuple)) else found


NAMESPACE["one"] = one
