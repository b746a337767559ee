"""Memory between guard pages, which must not be accessed; used with KERASISH_STRICT_MEMORY.

| value | blocks (values, scratch memory, buffers of variables) |
|---|---|
| `0` or unset | in ordinary memory: this module is not used |
| `1` | each on separate pages between guard pages; its end is at the guard page after it |
| `start` | the same, but its start is at the guard page before it |
| `shared` | at the plan's offsets in the arena; guard pages before and after the arena |

Blocks stay aligned to 64 bytes, so up to 63 bytes may be between an end and its guard page. The
rest of the pages around a block (its slack) holds a pattern that `strict.memory` compares. A read
or write of a guard page ends the process by a signal (SIGSEGV or SIGBUS).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

SETTING = "KERASISH_STRICT_MEMORY"
# The initial content of blocks and of the memory around them: a signaling NaN as float64. As
# float32 each half is a NaN: 0x7FB5A5A5, a signaling one, or its quiet form.
PATTERN = 0x7FF5A5A57FB5A5A5
ALIGNMENT = 64
_MODES = {"": "", "0": "", "1": "end", "start": "start", "shared": "shared"}
_NO_ACCESS, _READ = 0, 1  # PROT_NONE, PROT_READ


def mode() -> str:
    """Return "" (off), "end", "start" or "shared", according to KERASISH_STRICT_MEMORY.

    Raises:
        ValueError: the variable has another value.
        OSError: this system cannot protect pages.
    """
    wish = os.environ.get(SETTING, "")
    if wish not in _MODES:
        raise ValueError(f"{SETTING}: expected '0', '1', 'start' or 'shared', got {wish!r}.")
    if _MODES[wish] and os.name != "posix":
        raise OSError(f"{SETTING}={wish} needs mprotect, which {os.name!r} does not have.")
    return _MODES[wish]


class Range(NamedTuple):
    """Bytes of memory from `start` to `stop`, exclusive."""

    start: int
    stop: int


class Blocks:
    """Blocks of memory, each on separate pages with a guard page on either side.

    Args:
        sizes: the size of each block in bytes.
        at_start: whether a block starts right after a guard page; else it ends right before one.
        alignment: the alignment of blocks in bytes; at most the page size.

    Attributes:
        addresses: the address of each block.
        owner: an array of all pages; keep it alive, and do not access its elements.
    """

    def __init__(
        self, sizes: Sequence[int], at_start: bool = False, alignment: int = ALIGNMENT
    ) -> None:
        page = mmap.PAGESIZE
        spans = [_up(max(n, 1), page) for n in sizes]
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        pages = mmap.mmap(-1, sum(spans) + page * (len(spans) + 1), flags=flags)
        self.owner = np.frombuffer(pages, np.uint8)
        self.addresses: list[int] = []
        at = int(self.owner.ctypes.data)
        protect(at, page)
        at += page
        for size, span in zip(sizes, spans):
            words = (ctypes.c_uint64 * (span // 8)).from_address(at)
            np.frombuffer(words, np.uint64)[:] = PATTERN
            self.addresses.append(at if at_start else at + span - _up(max(size, 1), alignment))
            protect(at + span, page)
            at += span + page


_guarded: set[int] = set()  # the addresses of single blocks


def block(size: int) -> tuple[Any, int]:
    """Return (owner, address) of one guarded block of `size` bytes, filled with the pattern."""
    blocks = Blocks([size], mode() == "start")
    address = blocks.addresses[0]
    _guarded.add(address)
    weakref.finalize(blocks.owner, _guarded.discard, address)
    return blocks.owner, address


def is_guarded(address: int) -> bool:
    """Return whether a single block starts at this address."""
    return address in _guarded


def constant(array: Any) -> Any:
    """Return a copy of a C-ordered array between guard pages, on pages that cannot be written."""
    owner, address = block(array.nbytes)
    shift = address - owner.ctypes.data
    copy = owner[shift : shift + array.nbytes].view(array.dtype).reshape(array.shape)
    np.copyto(copy, array)
    first = address // mmap.PAGESIZE * mmap.PAGESIZE
    protect(first, _up(address + array.nbytes, mmap.PAGESIZE) - first, _READ)
    copy.flags.writeable = False
    return copy


def slack(address: int, nbytes: int) -> list[Range]:
    """Return the ranges before and after a guarded block on its pages, filled with the pattern."""
    first = address // mmap.PAGESIZE * mmap.PAGESIZE
    last = _up(address + max(nbytes, 1), mmap.PAGESIZE)
    ranges = [Range(first, address), Range(address + nbytes, last)]
    return [r for r in ranges if r.start < r.stop]


def protect(address: int, nbytes: int, allowed: int = _NO_ACCESS) -> None:
    """Make whole pages read-only or inaccessible.

    Raises:
        MemoryError: the system does not allow more guard pages.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if libc.mprotect(address, nbytes, allowed):
        raise MemoryError(
            f"{SETTING}: mprotect failed ({os.strerror(ctypes.get_errno())}); the system limits "
            "how many guard pages a process may have (vm.max_map_count on Linux)."
        )


def _up(n: int, step: int) -> int:
    return -(-n // step) * step
