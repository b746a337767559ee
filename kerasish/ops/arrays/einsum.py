"""einsum: sums of products in the words of letters, composed of matrix products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kerasish.errors import ShapeError
from kerasish.ops.arrays.shaping import diagonal
from kerasish.ops.basic.arithmetic import add, multiply
from kerasish.ops.basic.conversion import as_tensor, cast
from kerasish.ops.basic.movement import reshape, transpose
from kerasish.ops.basic.nonlinearity import relu
from kerasish.ops.basic.product import matmul
from kerasish.ops.basic.reduce import reduce_sum
from kerasish.ops.op import function
from kerasish.ops.shapes import agree, is_unknown
from kerasish.typing import TensorLike

if TYPE_CHECKING:
    from kerasish.tensor import Tensor

__all__ = ["einsum"]

Letters = tuple[str, ...]
Term = tuple[Any, Letters]  # a tensor, and the letter of each of its axes


@function
def einsum(subscripts: str, *operands: Any, **kwargs: Any) -> Tensor:
    """Return the sum of products that `subscripts` spells: "ij,jk->ik" is a matrix product.

    Each operand's axes have a letter each. Letters that the result does not name are summed
    over; "..." means further axes, which broadcast. Without "->" the result names, in
    order, the letters that occur once.

    Operands that are all int8 give int32.

    Args:
        subscripts: the operands' letters, joined by commas, then "->" and the result's.
        operands: tensors.

    Raises:
        ShapeError: a letter has two sizes, or the letters do not match the number of axes.

    Example:
        >>> einsum("ij,ij->i", [[1.0, 2.0], [3.0, 4.0]], [[1.0, 1.0], [0.0, 2.0]]).tolist()
        [3.0, 8.0]
    """
    kwargs.pop("optimize", None)  # NumPy's word for looking for the best order: always done
    if kwargs:
        raise TypeError(f"einsum got an unexpected argument {next(iter(kwargs))!r}.")
    tensors = [as_tensor(x) for x in operands]
    if {x.dtype for x in tensors} == {"int8"}:
        tensors = [cast(x, "int32") for x in tensors]
    inputs, result = _read(subscripts, [len(x.shape) for x in tensors])
    sizes = _sizes(subscripts, tensors, inputs)
    for letter in result:
        if letter not in sizes:
            raise ValueError(f"einsum: {subscripts!r} asks for {letter!r}, which no operand has.")
    terms = [_without_repeats(x, own) for x, own in zip(tensors, inputs)]
    terms = [_without_ones(x, own, sizes) for x, own in terms]
    while len(terms) > 1:
        i, j = _cheapest(terms, result, sizes)
        right, left = terms.pop(j), terms.pop(i)
        needed = {*result}.union(*(own for _, own in terms))
        terms.insert(i, _meet(left, right, needed, sizes))
    x, own = _summed(terms[0], set(result))
    return _ordered(x, own, result, sizes)


@function
def einsum_affine(
    subscripts: str,
    x: TensorLike,
    kernel: TensorLike,
    bias: TensorLike | None = None,
    rectified: bool = False,
) -> Tensor:
    """Return einsum(subscripts, x, kernel) + bias; `rectified`: max(that, 0).

    Args:
        bias: broadcasts to the result; None: 0.

    Example:
        >>> einsum_affine("ab,bc->ac", [[1.0, 2.0]], [[1.0], [1.0]], [0.5]).tolist()
        [[3.5]]
    """
    y = einsum(subscripts, x, kernel)
    if bias is not None:
        y = add(y, bias)
    return relu(y) if rectified else y


def read_letters(subscripts: str, ranks: Sequence[int]) -> tuple[list[Letters], Letters]:
    """Return the letters of each operand and of the result, "..." spelled out as numbers.

    Example:
        >>> read_letters("...a,ab->...b", [3, 2])
        ([('2', '1', 'a'), ('a', 'b')], ('2', '1', 'b'))
    """
    return _read(subscripts, ranks)


def _read(subscripts: str, ranks: Sequence[int]) -> tuple[list[Letters], Letters]:
    """Return the letters of each operand and of the result, "..." spelled out as numbers."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    words = left.split(",")
    if len(words) != len(ranks):
        raise ValueError(
            f"einsum: {subscripts!r} names {len(words)} operands, got {len(ranks)} of them."
        )
    inputs: list[Letters] = []
    widest = 0
    for word, rank in zip(words, ranks):
        before, dots, after = word.partition("...")
        letters = before + after
        if not (letters == "" or letters.isalpha()):
            raise ValueError(f"einsum: {word!r} in {subscripts!r} is no row of letters.")
        more = rank - len(letters)
        if more < 0 or more and not dots:
            raise ShapeError(
                f"einsum: {word!r} in {subscripts!r} names {len(letters)} axes, the operand has "
                f"{rank}."
            )
        widest = max(widest, more)
        # Numbered from the right, so that axes meet as they do in broadcasting.
        inputs.append((*before, *(str(more - k) for k in range(more)), *after))
    dotted = tuple(str(widest - k) for k in range(widest))
    if not arrow:
        every = [c for own in inputs for c in own if c not in dotted]
        return inputs, (*dotted, *sorted(c for c in set(every) if every.count(c) == 1))
    before, dots, after = right.partition("...")
    result = (*before, *(dotted if dots else ()), *after)
    if len(set(result)) != len(result) or not (before + after == "" or (before + after).isalpha()):
        raise ValueError(f"einsum: the result {right!r} in {subscripts!r} must name letters once.")
    return inputs, result


def _sizes(subscripts: str, tensors: Sequence[Any], inputs: Sequence[Letters]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for x, own in zip(tensors, inputs):
        for letter, size in zip(own, x.shape):
            known = sizes.setdefault(letter, size)
            if known == 1 or is_unknown(known) and size != 1:
                sizes[letter] = size
            elif size != 1 and not agree(size, known):
                raise ShapeError(
                    f"einsum: {letter!r} in {subscripts!r} has the sizes {known} and {size}; "
                    f"got shapes {[tuple(t.shape) for t in tensors]}."
                )
    return sizes


def _without_repeats(x: Tensor, own: Letters) -> Term:
    """Return the diagonal along the axes that share a letter."""
    for letter in dict.fromkeys(own):
        while own.count(letter) > 1:
            i = own.index(letter)
            j = own.index(letter, i + 1)
            x = diagonal(x, 0, i, j)
            own = (*own[:i], *own[i + 1 : j], *own[j + 1 :], letter)
    return x, own


def _without_ones(x: Tensor, own: Letters, sizes: dict[str, int]) -> Term:
    """Drop the axes of size 1 that must broadcast."""
    kept = [i for i, c in enumerate(own) if x.shape[i] != 1 or sizes[c] == 1]
    if len(kept) == len(own):
        return x, own
    return reshape(x, tuple(x.shape[i] for i in kept)), tuple(own[i] for i in kept)


def _summed(term: Term, needed: set[str]) -> Term:
    x, own = term
    axes = tuple(i for i, c in enumerate(own) if c not in needed)
    return (reduce_sum(x, axes), tuple(c for c in own if c in needed)) if axes else term


def _ordered(x: Tensor, own: Letters, target: Letters, sizes: dict[str, int]) -> Tensor:
    """Return x with its axes in the order of `target`."""
    order = tuple(own.index(c) for c in target)
    return x if order == tuple(range(len(own))) else transpose(x, order)


def _cheapest(terms: Sequence[Term], result: Letters, sizes: dict[str, int]) -> tuple[int, int]:
    """Return the two terms whose product is the smallest."""
    best: tuple[float, int, int] = (math.inf, 0, 1)
    if len(terms) > 2:
        for j in range(1, len(terms)):
            for i in range(j):
                rest = {*result}.union(*(o for k, (_, o) in enumerate(terms) if k not in (i, j)))
                kept = {*terms[i][1], *terms[j][1]} & rest
                best = min(best, (math.prod(sizes[c] for c in kept), i, j))
    return best[1:]


def _meet(left: Term, right: Term, needed: set[str], sizes: dict[str, int]) -> Term:
    """Return the product of two terms, summed over what neither the result nor others need."""
    x, a = _summed(left, needed | set(right[1]))
    y, b = _summed(right, needed | set(a))
    both = tuple(c for c in a if c in b and c in needed)
    inner = tuple(c for c in a if c in b and c not in needed)
    rows = tuple(c for c in a if c not in b)
    columns = tuple(c for c in b if c not in a)

    def shape(*letters: str) -> tuple[int, ...]:
        return tuple(sizes[c] for c in letters)

    def whole(letters: Letters) -> int:
        return math.prod(shape(*letters))

    x = _ordered(x, a, (*both, *rows, *inner), sizes)
    if not inner:
        y = _ordered(y, b, (*both, *columns), sizes)
        if rows and columns:
            x = reshape(x, (*shape(*both, *rows), *(1,) * len(columns)))
            y = reshape(y, (*shape(*both), *(1,) * len(rows), *shape(*columns)))
        elif both and rows:
            y = reshape(y, (*shape(*both), *(1,) * len(rows)))
        elif both and columns:
            x = reshape(x, (*shape(*both), *(1,) * len(columns)))
        return multiply(x, y), (*both, *rows, *columns)
    y = _ordered(y, b, (*both, *inner, *columns), sizes)
    # Without shared letters all rows meet one matrix, whatever axes they have.
    lead = shape(*both) if both else shape(*rows[:-1])
    many = whole(rows) if both else whole(rows[-1:])
    x = _reshaped(x, (*lead, many, whole(inner)))
    y = _reshaped(y, (*shape(*both), whole(inner), whole(columns)))
    product = matmul(x, y)
    return _reshaped(product, shape(*both, *rows, *columns)), (*both, *rows, *columns)


def _reshaped(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    return x if tuple(x.shape) == shape else reshape(x, shape)
