"""The conformance suite of backends: what the contract promises, tried out."""

from __future__ import annotations

import contextlib
import io
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from kerasish import autodiff, backends, ops, random, tree
from kerasish.backends import Backend, CompiledStep
from kerasish.ops import dtypes
from kerasish.ops.op import REGISTRY, Op
from kerasish.tensor import Tensor, Variable, prepare, to_numpy, wrap
from kerasish.typing import AnyTensor, Array, SeedLike, Structure


def check_backend(name: str, rtol: float = 1e-4, atol: float = 1e-5) -> list[str]:
    """Try out what a backend promises; return the names of the checks, or raise with all failures.

    Every op's examples, applied and compiled, must give what the reference kernel gives (floating
    results to the tolerances, all others exactly); gradients inside a step what they give outside;
    random numbers the same bits; and steps must take effect all or none.

    Args:
        name: of the backend, as `kerasish.config.set_backend` takes it.
        rtol: relative tolerance of floating results.
        atol: absolute tolerance, in units of the result's largest number.

    Raises:
        UnknownNameError: no such backend.
        AssertionError: checks failed; the message lists each with its reason.

    Example:
        >>> passed = check_backend("eager")
        >>> "apply add 0" in passed
        True
    """
    backend = backends.get(name)
    passed, failed = [], []
    # What users would hear and read, not what is right or wrong.
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        for title, check in _checks(backend, name, rtol, atol):
            try:
                check()
            except Exception as error:  # noqa: BLE001 - any error belongs in the report
                failed.append(f"{title}: {type(error).__name__}: {_first_lines(error)}")
            else:
                passed.append(title)
    if failed:
        raise AssertionError(
            f"Backend {name!r} fails {len(failed)} of {len(failed) + len(passed)} checks:\n"
            + "\n".join(f"- {line}" for line in failed)
        )
    return passed


def _first_lines(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:4])


def _checks(
    backend: Backend, name: str, rtol: float, atol: float
) -> Iterator[tuple[str, Callable[[], None]]]:
    suite = _Suite(backend, name, rtol, atol)
    for method in (
        suite.is_a_backend, suite.compiles_steps, suite.passes_structures, suite.takes_new_shapes,
        suite.reads_and_assigns, suite.assigns_together, suite.is_undone_by_an_error,
        suite.recovers_after_an_error, suite.trains_a_line, suite.draws_the_same_numbers,
        suite.keeps_nan_and_infinity, suite.runs_in_threads,
        suite.copies_what_the_caller_may_change,
    ):  # fmt: skip
        yield method.__name__.replace("_", " "), method
    for op in REGISTRY.values():
        for i, (parts, attrs) in enumerate(op.examples):
            case = _Case(op, parts, attrs)
            yield f"apply {op.name} {i}", lambda case=case: suite.applies(case)  # type: ignore[misc]
            yield f"compile {op.name} {i}", lambda case=case: suite.compiles(case)  # type: ignore[misc]
            if op.grad is not None:
                yield (
                    f"differentiate {op.name} {i}",
                    lambda case=case: suite.differentiates(case),  # type: ignore[misc]
                )


class _Case:
    """One example of an op, made into arrays."""

    def __init__(self, op: Op, parts: Sequence[Any], attrs: dict[str, Any]) -> None:
        self.op, self.parts, self.attrs = op, parts, dict(attrs)

    def arrays(self) -> list[Any]:
        rng = np.random.default_rng(11)
        return [_example(part, rng) for part in self.parts]

    def call(self, arrays: Sequence[Any]) -> Structure:
        return (
            self.op(list(arrays), **self.attrs)
            if self.op.variadic
            else self.op(*arrays, **self.attrs)
        )

    def bound(self) -> tuple[Sequence[Tensor], dict[str, Any]]:
        """Return (inputs, attrs) as an engine gets them."""
        arrays = self.arrays()
        args, attrs = self.op.bind((arrays,) if self.op.variadic else arrays, self.attrs)
        tensors, attrs = prepare(self.op, args[0] if self.op.variadic else args, attrs)
        return tensors, attrs

    def reference(self) -> Structure:
        """Return what the op's own kernel gives on NumPy arrays."""
        tensors, attrs = self.bound()
        with np.errstate(all="ignore"):
            return self.op.kernel(np, *[to_numpy(t) for t in tensors], **attrs)


def _example(part: Callable[..., Any] | tuple[int, ...], rng: Any) -> Array:
    if callable(part):
        part = part(rng)
    array = np.asarray(rng.normal(size=part) if isinstance(part, tuple) else part)
    return array.astype("float32") if array.dtype == np.float64 else array


class _Suite:
    """The checks of one backend."""

    def __init__(self, backend: Backend, name: str, rtol: float, atol: float) -> None:
        self.backend, self.name, self.rtol, self.atol = backend, name, rtol, atol

    # --- comparing -------------------------------------------------------------------------------

    def numpy(self, x: AnyTensor) -> Array:
        value = x.value if isinstance(x, Variable) else x
        return np.asarray(to_numpy(value if isinstance(value, Tensor) else wrap(value)))

    def same(self, got: dict[str, Any] | AnyTensor | Sequence[Any], expected: Structure) -> None:
        results, targets = tree.flatten(got), tree.flatten(expected)
        assert len(results) == len(targets), f"{len(results)} results, expected {len(targets)}"
        for a, b in zip(results, targets):
            a, b = self.numpy(a), np.asarray(b.numpy() if isinstance(b, Tensor) else b)
            assert a.shape == b.shape, f"shape {a.shape}, expected {b.shape}"
            assert a.dtype == b.dtype, f"dtype {a.dtype}, expected {b.dtype}"
            if not dtypes.is_inexact(dtypes.name_of(b.dtype)) or not b.size:
                np.testing.assert_array_equal(a, b)
                continue
            wide = "complex128" if b.dtype.kind == "c" else "float64"
            a, b = a.astype(wide), b.astype(wide)
            scale = float(np.max(np.abs(np.where(np.isfinite(b), b, 0)))) or 1.0
            np.testing.assert_allclose(a, b, self.rtol, self.atol * scale, equal_nan=True)

    # --- the contract ----------------------------------------------------------------------------

    def is_a_backend(self) -> None:
        assert isinstance(self.backend, Backend), f"{type(self.backend)} is no Backend"
        assert self.backend.name == self.name, f"its name is {self.backend.name!r}"
        assert backends.get(self.name) is self.backend, "get() makes another one each time"
        self.backend.synchronize()
        report = self.backend.memory_report()
        assert all(isinstance(bytes_, int) for bytes_ in report.values()), report

    def compiles_steps(self) -> None:
        step = self.backend.compile(lambda x: ops.negative(x))
        assert isinstance(step, CompiledStep), f"compile() gives {type(step)}, no CompiledStep"
        x = np.arange(3, dtype="float32")
        self.same(step(x), -x)
        result, reads = step.call_reading(x)
        self.same(result, -x)
        assert not reads, reads
        assert all(isinstance(bytes_, int) for bytes_ in step.memory_report().values())
        assert all(isinstance(title, str) for title, _ in step.graphs())

    # --- steps -----------------------------------------------------------------------------------

    def passes_structures(self) -> None:
        def step(x: Array, pair: dict[str, Any]) -> dict[str, Any]:
            return {"sum": ops.add(x, pair["a"]), "both": [pair["b"][0], ops.negative(x)]}

        a = np.arange(3, dtype="float32")
        result = self.backend.compile(step)(a, {"a": a, "b": (a + 1,)})
        assert sorted(result) == ["both", "sum"], result
        assert isinstance(result["both"], list), type(result["both"])
        self.same(result["sum"], a + a)
        self.same(result["both"], [a + 1, -a])

    def takes_new_shapes(self) -> None:
        step = self.backend.compile(lambda x: ops.sum(ops.square(x), axis=0))
        for rows in (4, 3, 4, 1):
            x = np.arange(rows * 2, dtype="float32").reshape(rows, 2)
            self.same(step(x), (x**2).sum(0))
        self.same(step(np.array([[3]], "int32")), np.array([9], "int32"))

    def reads_and_assigns(self) -> None:
        total = Variable(np.zeros(2, "float32"))

        def step(x: Array) -> Tensor:
            total.assign(ops.add(total, x))
            total.assign(ops.multiply(total, 2.0))
            return ops.add(total, 0.0)

        compiled = self.backend.compile(step)
        self.same(compiled(np.ones(2, "float32")), np.full(2, 2, "float32"))
        self.same(compiled(np.ones(2, "float32")), np.full(2, 6, "float32"))
        self.same(total, np.full(2, 6, "float32"))
        total.assign(np.zeros(2, "float32"))  # assigned outside, seen inside
        self.same(compiled(np.ones(2, "float32")), np.full(2, 2, "float32"))

    def assigns_together(self) -> None:
        a, b = Variable(np.float32(1)), Variable(np.float32(2))

        def swap() -> None:
            first, second = ops.add(a, 0.0), ops.add(b, 0.0)
            a.assign(second)
            b.assign(first)

        compiled = self.backend.compile(swap)
        compiled()
        self.same([a, b], [np.float32(2), np.float32(1)])
        compiled()
        self.same([a, b], [np.float32(1), np.float32(2)])

    def is_undone_by_an_error(self) -> None:
        v = Variable(np.float32(1))

        class Stop(BaseException):
            pass

        def step(x: Array) -> Structure:
            v.assign(ops.add(v, 1.0))
            raise Stop

        try:
            self.backend.compile(step)(np.float32(0))
        except Stop:
            self.same(v, np.float32(1))
        else:
            raise AssertionError("the step's error did not arrive")

    def recovers_after_an_error(self) -> None:
        v = Variable(np.zeros(2, "float32"))

        def step(x: Array) -> Tensor:
            v.assign(ops.add(v, x))
            return ops.add(v, 1.0)

        compiled = self.backend.compile(step)
        compiled(np.ones(2, "float32"))
        try:
            compiled(np.ones(3, "float32"))
        except ValueError:
            self.same(v, np.ones(2, "float32"))
        else:
            raise AssertionError("shapes (2,) and (3,) were added")
        self.same(compiled(np.ones(2, "float32")), np.full(2, 3, "float32"))

    def trains_a_line(self) -> None:
        rng = np.random.default_rng(3)
        x = rng.normal(size=(16, 3)).astype("float32")
        y = (x @ np.array([[1.0], [-2.0], [0.5]]) + 0.25).astype("float32")
        w, b = Variable(np.zeros((3, 1), "float32")), Variable(np.zeros(1, "float32"))

        def loss() -> Any:
            return ops.mean(ops.square(ops.subtract(ops.add(ops.matmul(x, w), b), y)))

        def step() -> Tensor:
            value = loss()
            slopes = autodiff.gradients_of(value, [w, b])
            for v, slope in zip((w, b), slopes):
                v.assign(ops.subtract(v, ops.multiply(0.1, slope)))
            return value

        expected_w, expected_b = np.zeros((3, 1)), np.zeros(1)
        compiled = self.backend.compile(step)
        for _ in range(20):
            miss = x @ expected_w + expected_b - y
            self.same(compiled(), np.float32((miss**2).mean()))
            expected_w = expected_w - 0.1 * 2 * x.T @ miss / len(x)
            expected_b = expected_b - 0.1 * 2 * miss.mean(0)
        self.same([w, b], [expected_w.astype("float32"), expected_b.astype("float32")])

    def draws_the_same_numbers(self) -> None:
        def draw(seed: SeedLike) -> dict[str, Any]:
            return {
                "uniform": random.uniform((5, 3), seed=seed),
                "normal": random.normal((7,), seed=seed),
                "whole": random.randint((6,), 0, 100, seed=seed),
                "kept": random.dropout(np.ones((8, 8), "float32"), 0.5, seed=seed),
            }

        here, there = random.SeedGenerator(5), random.SeedGenerator(5)
        compiled = self.backend.compile(lambda: draw(there))
        first = None
        for _ in range(3):
            results = {k: self.numpy(v) for k, v in compiled().items()}
            self.same(results, {k: v.numpy() for k, v in draw(here).items()})
            if first is not None:
                assert not np.array_equal(first["uniform"], results["uniform"]), "drawn twice"
            first = results
        self.same(there.state, here.state.numpy())

    def keeps_nan_and_infinity(self) -> None:
        x = np.array([-1.0, 0.0, np.nan, np.inf, -np.inf, 1.0], "float32")

        def step(x: Array) -> list[Tensor]:
            return [ops.log(x), ops.divide(1.0, x), ops.maximum(x, 0.0), ops.exp(x), ops.isnan(x)]

        with np.errstate(all="ignore"):
            expected = [np.log(x), np.float32(1) / x, np.maximum(x, 0), np.exp(x), np.isnan(x)]
        self.same(self.backend.compile(step)(x), expected)

    def runs_in_threads(self) -> None:
        step = self.backend.compile(lambda x: ops.sum(ops.multiply(x, x)))
        errors: list[BaseException] = []

        def work(number: int) -> None:
            x = np.full((64, number + 1), number, "float32")
            try:
                for _ in range(20):
                    self.same(step(x), np.float32((x * x).sum()))
            except BaseException as error:  # noqa: BLE001 - raised again below
                errors.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def copies_what_the_caller_may_change(self) -> None:
        x = np.arange(6, dtype="float32")
        op = REGISTRY["reshape"]
        args, attrs = op.bind((x, (2, 3)), {})
        applied = self.backend.apply(op, args, attrs)
        compiled = self.backend.compile(lambda x: ops.reshape(x, (2, 3)))(x)
        x[:] = -1
        self.same([applied, compiled], [np.arange(6, dtype="float32").reshape(2, 3)] * 2)

    # --- ops -------------------------------------------------------------------------------------

    def applies(self, case: _Case) -> None:
        tensors, attrs = case.bound()
        self.same(self.backend.apply(case.op, tensors, attrs), case.reference())

    def compiles(self, case: _Case) -> None:
        step = self.backend.compile(lambda *xs: case.call(xs))
        self.same(step(*case.arrays()), case.reference())

    def differentiates(self, case: _Case) -> None:
        arrays = case.arrays()
        chosen = tuple(i for i, a in enumerate(arrays) if a.dtype == np.float32)
        if not chosen:
            return

        def total(*xs: Any) -> Tensor:
            parts = [ops.sum(y) for y in tree.flatten(case.call(xs)) if y.dtype == "float32"]
            return sum(parts[1:], parts[0]) if parts else ops.zeros(())

        both = autodiff.value_and_grad(total, chosen)
        step = self.backend.compile(lambda *xs: both(*xs))
        self.same(step(*arrays), both(*arrays))
