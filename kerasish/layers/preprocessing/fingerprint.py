"""Fingerprints of byte strings, many at a time: FarmHash64, SipHash-2-4, and their mixing.

They are what TensorFlow calls `Fingerprint64`, `StrongKeyedHash` and `FingerprintCat64`: stable
over machines and versions, so that a table of embeddings stays true to its bins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerasish.typing import Array

_MASK = 2**64 - 1
_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F
_CROSS = 0xC6A4A7935BD1E995


def _u(number: int) -> Array:
    """Return a number modulo 2**64."""
    return np.uint64(number & _MASK)


def _turn(x: Array, bits: int) -> Array:
    """Return x rotated right."""
    return (x >> np.uint64(bits)) | (x << np.uint64(64 - bits))


def _turn_left(x: Array, bits: int) -> Array:
    return _turn(x, 64 - bits)


def _shift_mix(x: Array) -> Array:
    return x ^ (x >> np.uint64(47))


def _mix_pair(u: Array, v: Array, factor: Array) -> Array:
    a = _shift_mix((u ^ v) * factor)
    return _shift_mix((v ^ a) * factor) * factor


class _Strings:
    """Strings of one length, one per row; `at` reads a little-endian word at a place of each."""

    def __init__(self, strings: Sequence[bytes], length: int) -> None:
        self.length = length
        self.bytes = np.frombuffer(b"".join(strings), np.uint8).reshape(len(strings), length)

    def word(self, place: int, size: int) -> Array:
        part = np.ascontiguousarray(self.bytes[:, place : place + size])
        return part.view(f"<u{size}")[:, 0].astype(np.uint64)

    def at(self, place: int) -> Array:
        return self.word(place if place >= 0 else self.length + place, 8)

    def byte(self, place: int) -> Array:
        return self.bytes[:, place].astype(np.uint64)


# --- FarmHash64 (its variant "na") -------------------------------------------------------------


def _farm_short(s: _Strings) -> Array:
    n = s.length
    factor = _u(_K2 + 2 * n)
    if n >= 8:
        a, b = s.at(0) + _u(_K2), s.at(-8)
        return _mix_pair(_turn(b, 37) * factor + a, (_turn(a, 25) + b) * factor, factor)
    if n >= 4:
        first, last = s.word(0, 4), s.word(n - 4, 4)
        return _mix_pair(_u(n) + (first << np.uint64(3)), last, factor)
    y = s.byte(0) + (s.byte(n // 2) << np.uint64(8))
    z = _u(n) + (s.byte(n - 1) << np.uint64(2))
    return _shift_mix(y * _u(_K2) ^ z * _u(_K0)) * _u(_K2)


def _farm_half(s: _Strings, a: Array, factor: Array) -> tuple[Any, Any]:
    b, c, d = s.at(8), s.at(-8) * factor, s.at(-16) * _u(_K2)
    return _turn(a + b, 43) + _turn(c, 30) + d, a + _turn(b + _u(_K2), 18) + c


def _farm_middle(s: _Strings) -> Array:
    factor = _u(_K2 + 2 * s.length)
    return _mix_pair(*_farm_half(s, s.at(0) * _u(_K1), factor), factor)


def _farm_long(s: _Strings) -> Array:
    factor = _u(_K2 + 2 * s.length)
    a = s.at(0) * _u(_K2)
    y, other = _farm_half(s, a, factor)
    z = _mix_pair(y, other, factor)
    e, f = s.at(16) * factor, s.at(24)
    g, h = (y + s.at(-32)) * factor, (z + s.at(-24)) * factor
    return _mix_pair(_turn(e + f, 43) + _turn(g, 30) + h, e + _turn(f + a, 18) + g, factor)


def _weak(s: _Strings, place: int, a: Array, b: Array) -> tuple[Any, Any]:
    w, x, y, z = (s.at(place + 8 * i) for i in range(4))
    a = a + w
    b, c = _turn(b + a + z, 21), a
    a = a + x + y
    return a + z, b + _turn(a, 44) + c


def _farm_blocks(s: _Strings) -> Array:
    n = s.length
    ones = np.ones(len(s.bytes), np.uint64)
    y = ones * _u(81 * _K1 + 113)
    z = _shift_mix(y * _u(_K2) + _u(113)) * _u(_K2)
    x = ones * _u(81 * _K2) + s.at(0)
    v = w = (ones * _u(0), ones * _u(0))
    factor, nine, one = _u(_K1), _u(1), _u(1)

    def stir(place: int) -> None:
        nonlocal x, y, z, v, w
        x = _turn(x + y + v[0] + s.at(place + 8), 37) * factor
        y = _turn(y + v[1] + s.at(place + 48), 42) * factor
        x = x ^ w[1] * nine
        y = y + v[0] * nine + s.at(place + 40)
        z = _turn(z + w[0], 33) * factor
        v = _weak(s, place, v[1] * factor, x + w[0])
        w = _weak(s, place + 32, z + w[1], y + s.at(place + 16))
        x, z = z, x

    end = (n - 1) // 64 * 64
    for place in range(0, end, 64):
        stir(place)
    factor = _u(_K1) + ((z & _u(0xFF)) << one)
    nine = _u(9)
    first = w[0] + _u((n - 1) & 63)
    v = (v[0] + first, v[1])
    w = (first + v[0], w[1])
    stir(n - 64)
    left = _mix_pair(v[0], w[0], factor) + _shift_mix(y) * _u(_K0) + z
    return _mix_pair(left, _mix_pair(v[1], w[1], factor) + x, factor)


def _farm(s: _Strings) -> Array:
    if s.length == 0:
        return np.full(len(s.bytes), _K2, np.uint64)
    if s.length <= 16:
        return _farm_short(s)
    if s.length <= 32:
        return _farm_middle(s)
    return _farm_long(s) if s.length <= 64 else _farm_blocks(s)


# --- SipHash-2-4 ----------------------------------------------------------------------------------


def _sip(s: _Strings, key: tuple[int, int]) -> Array:
    ones = np.ones(len(s.bytes), np.uint64)
    magic = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
    a, b, c, d = (ones * _u(m ^ key[i % 2]) for i, m in enumerate(magic))

    def stir(times: int) -> None:
        nonlocal a, b, c, d
        for _ in range(times):
            a, c = a + b, c + d
            b, d = _turn_left(b, 13) ^ a, _turn_left(d, 16) ^ c
            a = _turn_left(a, 32)
            c, a = c + b, a + d
            b, d = _turn_left(b, 17) ^ c, _turn_left(d, 21) ^ a
            c = _turn_left(c, 32)

    whole = s.length // 8 * 8
    tail = ones * _u(s.length << 56)
    for i in range(whole, s.length):
        tail = tail | (s.byte(i) << np.uint64(8 * (i - whole)))
    for word in (*(s.at(i) for i in range(0, whole, 8)), tail):
        d = d ^ word
        stir(2)
        a = a ^ word
    c = c ^ _u(0xFF)
    stir(4)
    return a ^ b ^ c ^ d


# --- what the layers call -------------------------------------------------------------------------


def _by_length(strings: Sequence[bytes], one_length: Callable[[_Strings], Any]) -> Array:
    groups: dict[int, list[int]] = {}
    for i, s in enumerate(strings):
        groups.setdefault(len(s), []).append(i)
    result = np.empty(len(strings), np.uint64)
    for length, places in groups.items():
        result[places] = one_length(_Strings([strings[i] for i in places], length))
    return result


def farm_fingerprints(strings: Sequence[bytes]) -> Array:
    """Return FarmHash64 of each string, uint64.

    Source: Pike, FarmHash (2014), its stable `Fingerprint64`.

    Example:
        >>> [hex(int(f)) for f in farm_fingerprints([b"", b"hello"])]
        ['0x9ae16a3b2f90404f', '0xb48be5a931380ce8']
    """
    return _by_length(strings, _farm)


def keyed_fingerprints(strings: Sequence[bytes], key: tuple[int, int]) -> Array:
    """Return SipHash-2-4 of each string under a key of two 64-bit numbers, uint64.

    Source: Aumasson and Bernstein, SipHash: a fast short-input PRF (2012).

    Example:
        >>> keyed_fingerprints([b"a", b"a"], (1, 2)).dtype
        dtype('uint64')
    """
    return _by_length(strings, lambda rows: _sip(rows, key))


def join_fingerprints(first: Array, second: Array) -> Array:
    """Return the fingerprints of pairs of fingerprints; the order counts.

    Example:
        >>> int(join_fingerprints(np.uint64([1]), np.uint64([2]))[0]) != 3
        True
    """
    factor = _u(_CROSS)
    result = first ^ factor
    result = (result ^ _shift_mix(second * factor) * factor) * factor
    return _shift_mix(_shift_mix(result) * factor)
