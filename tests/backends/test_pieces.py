"""Products in pieces, and sums over ranks that start behind them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import rank_models as models

import kerasish as keras
from kerasish import ops
from kerasish.backends.static.engine import COMPILED_PLANS, Static
from kerasish.backends.static.lowering import overlap
from kerasish.backends.static.lowering.exchange import Exchange, ExchangeUnit
from kerasish.backends.static.lowering.library import plain_view
from kerasish.backends.static.lowering.overlap import FinishUnit, StartUnit, overlapped
from kerasish.backends.static.lowering.pieces import ProductPiece, in_pieces
from kerasish.backends.static.lowering.units import Unit
from kerasish.graph.ir import Value
from kerasish.ops.basic.conversion import optimization_barrier


def transposed(pieces: int) -> Callable[..., Any]:
    """A gradient as of a layer's kernel: the factor's rows are columns of an activation."""
    return lambda a, b: optimization_barrier(ops.transpose(a) @ b, pieces=pieces) + 1.0


def straight(pieces: int) -> Callable[..., Any]:
    return lambda a, b: optimization_barrier(a @ b, pieces=pieces) + 1.0


def batches(pieces: int) -> Callable[..., Any]:
    return lambda a, b: optimization_barrier(a @ b, pieces=pieces) + 1.0


@pytest.mark.parametrize("strict", ["", "1"])
@pytest.mark.parametrize(
    ("make", "shapes", "pieces", "count"),
    [
        (transposed, [(60, 71), (60, 65)], 4, 4),
        (transposed, [(300, 515), (300, 515)], 4, 4),
        (transposed, [(2, 515), (2, 515)], 4, 4),
        (transposed, [(1, 515), (1, 515)], 4, 4),
        (transposed, [(400, 300), (400, 5)], 4, 4),
        (transposed, [(60, 3), (60, 70)], 4, 3),
        (transposed, [(60, 1), (60, 70)], 4, 0),
        (straight, [(71, 60), (60, 65)], 3, 3),
        (batches, [(5, 40, 60), (5, 60, 50)], 4, 0),
    ],
)
def test_the_pieces_are_the_product(
    monkeypatch: pytest.MonkeyPatch,
    strict: str,
    make: Callable[[int], Callable[..., Any]],
    shapes: list[tuple[int, ...]],
    pieces: int,
    count: int,
) -> None:
    monkeypatch.setenv("KERASISH_STRICT_MEMORY", strict)
    COMPILED_PLANS.clear()
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape, dtype=np.float32) for shape in shapes)
    step = Static().compile(make(pieces))
    wide = a.astype("float64"), b.astype("float64")
    expected = (wide[0].T if make is transposed else wide[0]) @ wide[1] + 1.0
    for _ in range(2):
        np.testing.assert_allclose(step(a, b).numpy(), expected, 1e-5, 1e-4)
    units = [u for executable in step.executables() for u in executable.units]
    assert sum(isinstance(u, ProductPiece) for u in units) == count
    COMPILED_PLANS.clear()


class Sum(ExchangeUnit):
    """A sum that is never sent."""

    def __init__(self, x: Value, y: Value, pieces: int) -> None:
        Unit.__init__(self, "sum", (x,), (y,))
        group: Any = SimpleNamespace(rank=0, size=2)
        calls: Any = None
        self.exchange = Exchange("sum", y, group, calls)
        self._pieces = pieces


def schedule(monkeypatch: pytest.MonkeyPatch, units: Sequence[Unit]) -> list[str]:
    """Return the kinds of units as they will run: product, start, wait or other."""
    monkeypatch.delenv("KERASISH_STRICT_MEMORY", raising=False)  # there, sums are not started early
    monkeypatch.setattr(overlap, "progress_thread", lambda group, calls: None)
    monkeypatch.setattr(overlap, "_is_long", lambda unit: False)
    kinds = {ProductPiece: "product", StartUnit: "start", FinishUnit: "wait"}
    return [kinds.get(type(u), u.name) for u in overlapped(units, lambda v: v)]


def product(rows: int, columns: int, pieces: int) -> tuple[Value, list[Unit]]:
    a, b = Value((rows, 60), "float32"), Value((60, columns), "float32")
    out = Value((rows, columns), "float32")
    return out, in_pieces(plain_view(a), plain_view(b), out, pieces)


@pytest.mark.parametrize(("products", "sums"), [(4, 4), (2, 4), (4, 2), (4, 1), (3, 4)])
def test_a_sum_starts_behind_the_rows_that_it_sends(
    monkeypatch: pytest.MonkeyPatch, products: int, sums: int
) -> None:
    x, units = product(71, 65, products)
    y = Value(x.shape, "float32")
    other = Unit("other", (), (Value((1,), "float32"),))
    reader = Unit("reader", (y,), (Value((1,), "float32"),))
    found = schedule(monkeypatch, [other, *units, Sum(x, y, sums), other, reader])
    assert found[0] == "other" and found[-2 - sums :] == ["other", *["wait"] * sums, "reader"]
    between = found[1 : -2 - sums]
    assert between.count("product") == products and between.count("start") == sums
    size, rows = 71 * 65, [len(part) * 65 for part in np.array_split(np.arange(71), products)]
    sent = np.cumsum([len(part) for part in np.array_split(np.arange(size), sums)])
    for number, stop in enumerate(sent):
        place = [i for i, kind in enumerate(between) if kind == "start"][number]
        computed = between[:place].count("product")
        assert sum(rows[:computed]) >= stop  # what is sent has been computed,
        assert sum(rows[: computed - 1]) < stop  # and no more than that


def test_other_units_run_behind_the_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    (x, first), (_, second) = product(71, 65, 2), product(71, 65, 2)
    y, result = Value(x.shape, "float32"), Value((1,), "float32")
    reader = Unit("reader", (x,), (result,))
    units = [*first, *second, reader, Sum(x, y, 2)]
    expected = [*["product"] * 4, "reader", "start", "start", "wait", "wait"]
    assert schedule(monkeypatch, units) == expected


def test_the_pieces_of_a_sum_are_the_sum() -> None:
    whole = Value((71, 65), "float32")
    parts = Sum(whole, whole, 4).exchanges()
    assert [first for first, _ in parts] == [0, 1154, 2308, 3462]
    assert [exchange.count for _, exchange in parts] == [1154, 1154, 1154, 1153]
    few = Value((2,), "float32")
    assert [exchange.count for _, exchange in Sum(few, few, 4).exchanges()] == [1, 1]
    assert [exchange.count for _, exchange in Sum(whole, whole, 1).exchanges()] == [71 * 65]


@pytest.mark.parametrize("shards", [1, 2, 4])
def test_one_rank_computes_the_last_large_gradient_in_pieces(shards: int) -> None:
    """As each of several ranks does: so all numbers of ranks end with the same bits."""
    models.use_shards(shards)
    try:
        keras.utils.clear_session()
        model = models.compiled("wide")
        model.fit(*models.data(64), batch_size=64, verbose=0)
        step: Any = model.training_program.step("train")
    finally:
        models.use_shards(None)
    units = [u for e in getattr(step, "inner", step).executables() for u in e.units]
    # A batch that is not cut is computed as without shards.
    assert sum(isinstance(u, ProductPiece) for u in units) == (0 if shards == 1 else 4 * shards)
