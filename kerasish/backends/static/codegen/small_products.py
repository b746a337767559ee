"""Functions that other loops call for small products, with one matrix packed in a cache.

The packed matrix is cut into strips of columns, two vectors wide, then one; the columns after the
last one are zeros or arbitrary numbers. Strips are stored one after the other, each in order of its
rows: the strip that starts at column c is at c times the number of rows. A sum adds its terms in
order, for all other sizes.

Functions, with sizes and strides in elements:

    pack(from, row, rows, columns, to)    from: rows of adjacent columns, `row` apart
    turn(from, row, rows, columns, to)    packs the transpose: `rows` columns, `columns` rows. It
                                          writes up to `TURN_SLACK` elements after the last strip.
    multiply(a, a_row, a_term, packed, rows, terms, columns, out, out_row, add)
                                          out = a @ packed, or out += a @ packed where add is 1
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kerasish.backends.static.codegen.tiles import Columns, least, lines, over_rows, product, word
from kerasish.backends.static.machine.assembly import Target, Value, Writer, constant

PAIR = 2  # vectors of a wide strip
WIDEST = 16  # lanes of the widest vector
TURN_SLACK = PAIR * WIDEST * WIDEST
_PACK = "ptr from, i64 row, i64 rows, i64 columns, ptr to"
_SQUARE = "ptr from, i64 row, i64 rows, i64 columns, ptr to, i64 width"
_MULTIPLY = (
    "ptr a, i64 a_row, i64 a_term, ptr packed, i64 rows, i64 terms, i64 columns, ptr out, "
    "i64 out_row, i64 add"
)


def tile_rows(target: Target) -> int:
    """Return the rows of a tile."""
    return 8 if target.level == "avx512" else 4


def padded(count: int) -> int:
    """Return the most columns, with padding, that a packed matrix of `columns` columns takes."""
    return -(-count // WIDEST) * WIDEST


def functions(symbol: str, target: Target) -> tuple[str, set[str]]:
    """Return the LLVM IR of `symbol.pack` and the others, and the intrinsics to declare."""
    texts, declared = [], set()
    for name, parameters, write in (
        ("pack", _PACK, _pack), ("square", _SQUARE, _square), ("turn", _PACK, _turn),
        ("multiply", _MULTIPLY, _multiply),
    ):  # fmt: skip
        w = Writer(target)
        given = [pair.split() for pair in parameters.split(", ")]
        values = [Value(f"%{name}", "ptr" if kind == "ptr" else "int64") for kind, name in given]
        write(w, symbol, *values)
        w.do("ret void")
        head = ", ".join(f"{kind} %{name}" for kind, name in given)
        text = f"define internal void @{symbol}.{name}({head}) noinline #0 {{\n{w.body()}\n}}"
        texts.append(text)
        declared |= w.declared
    return "\n".join(texts), declared


def call(w: Writer, symbol: str, name: str, *arguments: Value) -> None:
    """Write a call of one of the functions."""
    w.do(f"call void @{symbol}.{name}({', '.join(a.typed for a in arguments)})")


def _strips(w: Writer, columns: Value, body: Callable[[Value, list[Columns]], None]) -> None:
    """Write body(first column, the strip's vectors) for each strip."""
    lanes = w.target.lanes
    pairs = PAIR * lanes
    wide = w.mul(w.two("sdiv", columns, word(pairs)), word(pairs))
    full = w.mul(w.two("sdiv", columns, word(lanes)), word(lanes))
    for start, stop, count in ((word(0), wide, PAIR), (wide, full, 1)):

        def whole(c: Value, _: list[Value], count: int = count) -> list[Value]:
            body(c, [Columns(w, lanes)] * count)
            return []

        w.loop(start, stop, count * lanes, [], whole)

    def part(c: Value, _: list[Value]) -> list[Value]:
        body(c, [Columns(w, lanes, w.sub(columns, c))])
        return []

    w.loop(full, columns, lanes, [], part)


def _pack(
    w: Writer, _: str, source: Value, row: Value, rows: Value, columns: Value, to: Value
) -> None:
    lanes = w.target.lanes

    def strip(c: Value, own: list[Columns]) -> None:
        start, end = w.address(source, c, 4), w.address(to, w.mul(c, rows), 4)

        def line(k: Value, _: list[Value]) -> list[Value]:
            before = w.address(start, w.mul(k, row), 4)
            after = w.address(end, w.mul(k, word(len(own) * lanes)), 4)
            for v, part in enumerate(own):
                skip = word(v * lanes)
                w.store_value(part.load(w.address(before, skip, 4)), w.address(after, skip, 4))
            return []

        w.loop(word(0), rows, 1, [], line)

    _strips(w, columns, strip)


def _turn(
    w: Writer, symbol: str, source: Value, row: Value, rows: Value, columns: Value, to: Value
) -> None:
    lanes = w.target.lanes

    def strip(c: Value, own: list[Columns]) -> None:
        width = word(len(own) * lanes)
        for v in range(len(own)):
            first = w.add(c, word(v * lanes)) if v else c
            start = w.address(source, w.mul(first, row), 4)
            end = w.address(w.address(to, w.mul(c, columns), 4), word(v * lanes), 4)

            def square(k: Value, _: list[Value], start: Value = start, end: Value = end,
                       first: Value = first) -> list[Value]:  # fmt: skip
                call(
                    w, symbol, "square", w.address(start, k, 4), row, w.sub(rows, first),
                    w.sub(columns, k), w.address(end, w.mul(k, width), 4), width,
                )  # fmt: skip
                return []

            w.loop(word(0), columns, lanes, [], square)

    _strips(w, rows, strip)


def _square(
    w: Writer, _: str, source: Value, row: Value, rows: Value, columns: Value, to: Value,
    width: Value,
) -> None:  # fmt: skip
    """Transpose a square of a vector's lanes; rows after the last one repeat it."""
    lanes = w.target.lanes
    last = w.sub(least(w, rows, word(lanes)), word(1))
    places = [w.address(source, w.mul(least(w, word(i), last), row), 4) for i in range(lanes)]
    full = Columns(w, lanes)
    vectors = w.branch(
        w.compare("sge", columns, word(lanes)),
        lambda: [full.load(at) for at in places],
        lambda: [part.load(at) for part in [Columns(w, lanes, columns)] for at in places],
    )
    for i, vector in enumerate(_transposed(w, vectors)):
        w.store_value(vector, w.address(to, w.mul(word(i), width), 4))


def _transposed(w: Writer, rows: Sequence[Value]) -> list[Value]:
    """Return the columns of a square of vectors, by swapping blocks of 1, 2, 4, ... lanes."""
    lanes, current, step = len(rows), list(rows), 1
    while step < lanes:
        following = list(current)
        low = [i if not i & step else lanes + i - step for i in range(lanes)]
        high = [i + step if not i & step else lanes + i for i in range(lanes)]
        for i in range(lanes):
            if not i & step:
                a, b = current[i], current[i + step]
                following[i], following[i + step] = w.shuffle(a, b, low), w.shuffle(a, b, high)
        current, step = following, 2 * step
    return current


def _multiply(
    w: Writer, _: str, a: Value, a_row: Value, a_term: Value, packed: Value, rows: Value,
    terms: Value, columns: Value, out: Value, out_row: Value, add: Value,
) -> None:  # fmt: skip
    lanes = w.target.lanes
    adding = w.compare("ne", add, word(0))

    def strip(c: Value, own: list[Columns]) -> None:
        strip_at, width = w.address(packed, w.mul(c, terms), 4), word(len(own) * lanes)
        full = [Columns(w, lanes)] * len(own)

        def tile(r: Value, count: int) -> None:
            ends = lines(w, w.address(out, c, 4), r, out_row, count)
            places = [
                (part, w.address(end, word(v * lanes), 4))
                for end in ends for v, part in enumerate(own)
            ]  # fmt: skip
            none = constant(0.0, "float32", lanes)
            starts = w.branch(
                adding,
                lambda: [part.load(at) for part, at in places],
                lambda: [none] * len(places),
            )
            sums = product(
                w, lines(w, a, r, a_row, count), a_term, strip_at, width, terms, full, starts
            )
            for (part, at), total in zip(places, sums, strict=True):
                part.store(total, at)

        over_rows(w, word(0), rows, tile_rows(w.target), tile)

    _strips(w, columns, strip)
