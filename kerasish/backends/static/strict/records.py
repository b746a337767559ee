"""The records that strict memory inserts between those of the units: fill, check, name."""

from __future__ import annotations

import atexit
import functools
import mmap
import os
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from kerasish.backends.static.codegen.driver import Record
from kerasish.backends.static.codegen.driver_code import UNWRITTEN, equal_bytes
from kerasish.backends.static.codegen.kernels import KernelText, compile_one
from kerasish.backends.static.lowering.units import Place, copy_record, nbytes_of
from kerasish.backends.static.machine.assembly import words_of
from kerasish.backends.static.machine.guard_pages import PATTERN, Range
from kerasish.graph.ir import Value
from kerasish.ops import dtypes

# The fill patterns of floating-point numbers, and the bits that make these NaNs quiet.
_NANS = {"float32": 0x7FB5A5A5, "float64": PATTERN, "bfloat16": 0x7FB5, "float16": 0x7DA5}
_QUIET = {"float32": 1 << 22, "float64": 1 << 51, "bfloat16": 1 << 6, "float16": 1 << 9}
_WIDTHS = {1: "i8", 2: "i16", 4: "i32", 8: "i64"}
_NAME_BYTES = 256

# Words: 0 address, 1 elements, 2 the pattern, 3 bits to set and 4 bits to keep before an element is
# compared, 5 the first element that is equal to the pattern.
_SEARCH = """define i32 @SYMBOL(ptr %args) #0 {{
entry:
{loads}
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %body, label %good
body:
  %at = getelementptr {type}, ptr %data, i64 %i
  %loaded = load {type}, ptr %at, align {bytes}
  %next = add i64 %i, 1
  %some = or {type} %loaded, %set
  %bits = and {type} %some, %keep
  %same = icmp eq {type} %bits, %pattern
  br i1 %same, label %bad, label %head
bad:
  store i64 %i, ptr %first, align 8
  ret i32 {status}
good:
  ret i32 0
}}"""

_CHANGED = equal_bytes(1)


class Pattern(NamedTuple):
    """The fill pattern of a block.

    Attributes:
        width: bytes per word.
        word: the value of each word.
        quiet: the bit that arithmetic sets in it; 0 for integers.
        sure: whether no correct value equals it.
    """

    width: int
    word: int
    quiet: int = 0
    sure: bool = False


def _pattern(key: Any) -> Pattern:
    if not isinstance(key, Value):
        return Pattern(8, PATTERN)
    width = int(dtypes.array_dtype(key.dtype).itemsize)
    dtype = {"complex64": "float32", "complex128": "float64"}.get(key.dtype, key.dtype)
    if dtype in _NANS:
        width = int(dtypes.array_dtype(dtype).itemsize)
        return Pattern(width, _NANS[dtype], _QUIET[dtype], True)
    return Pattern(width, int("A5" * width, 16), 0, width >= 4 or dtype == "bool")


@functools.lru_cache(maxsize=64)
def _source(width: int, word: int, nbytes: int) -> Any:
    return np.full(nbytes // width, word, f"uint{8 * width}")


def _filling(width: int, word: int, nbytes: int) -> Any:
    """Return at least `nbytes` bytes of a pattern."""
    return _source(width, word, 1 << max(nbytes, 4096).bit_length())


def fill(key: Any, place: Place) -> Iterator[Record]:
    """Yield the record that fills a block with the pattern."""
    if not place.nbytes:
        return
    width, word, *_ = _pattern(key)
    filling = _filling(width, word, place.nbytes)
    at = Place(filling.ctypes.data + place.address % width, place.nbytes)
    record = copy_record(at, place, "strict memory: fill")
    yield Record(record.function, record.block, record.name, filling)


@functools.cache
def _search_text(width: int) -> KernelText:
    kind = _WIDTHS[width]
    loads = words_of(
        "args", "ptr data", "i64 count", f"{kind} pattern", f"{kind} set", f"{kind} keep",
        "address first",
    )  # fmt: skip
    return KernelText(_SEARCH.format(type=kind, bytes=width, status=UNWRITTEN, loads=loads))


def search(v: Value, place: Place, what: str) -> Iterator[Record]:
    """Yield the record that fails if an element of v contains the fill pattern.

    Arithmetic turns a signaling NaN into a quiet one of either sign and keeps its other bits, so
    results computed from the pattern are detected, too.
    """
    width, word, quiet, sure = _pattern(v)
    if sure and v.size:
        keep = (1 << 8 * width - bool(quiet)) - 1
        words = [place.address, nbytes_of(v) // width, word | quiet, quiet, keep, 0]
        block = np.array(words, np.uint64).view(np.int64)
        yield Record(compile_one(_search_text(width)), block, f"strict memory: {what}")


def compare(part: Range, what: str) -> Record:
    """Return the record that fails if bytes around a block have changed."""
    nbytes = part.stop - part.start
    filling = _filling(8, PATTERN, nbytes)
    words = [part.start, filling.ctypes.data + part.start % 8, nbytes]
    return Record(compile_one(_CHANGED), np.array(words, np.int64), f"strict memory: {what}",
                  filling)  # fmt: skip


# --- the record that runs ---------------------------------------------------------------------


def name_file() -> str:
    """Return the file that names the running record; it is removed at a normal exit."""
    return os.path.join(tempfile.gettempdir(), f"kerasish-record-{os.getpid()}.txt")


@functools.cache
def _name_pages(process: int) -> Any:
    path = name_file()
    with open(path, "w+b") as file:
        file.truncate(_NAME_BYTES)
        pages = np.frombuffer(mmap.mmap(file.fileno(), _NAME_BYTES), np.uint8)
    atexit.register(_remove, path)
    return pages


def _remove(path: str) -> None:
    if os.path.exists(path):
        os.unlink(path)


def named(records: Sequence[Record]) -> list[Record]:
    """Return the records, each preceded by one that writes its name into `name_file`."""
    pages = _name_pages(os.getpid())
    results = []
    for number, record in enumerate(records):
        text = f"{number}: {record.name}".encode()[: _NAME_BYTES - 1]
        name = np.frombuffer(text.ljust(_NAME_BYTES - 1) + b"\n", np.uint8)
        copy = copy_record(Place(name.ctypes.data, len(name)), Place(pages.ctypes.data, len(name)))
        results += [Record(copy.function, copy.block, "strict memory: name", (name, pages)), record]
    return results
