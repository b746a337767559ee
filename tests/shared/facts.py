"""Files of recorded facts: arrays in one block of float32, all else as JSON.

A value may hold arrays at any depth. Numbers take 3 to 4 bytes each, and a fact of many small
arrays costs no more than one of a large array.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).parents[1] / "data"
MARK = "array of shape"
# How far two recordings may differ, as a share of an array's largest number (0.1 at least): other
# processors and other builds of the same libraries add in another order.
AGAIN, ROUNDED = 5e-6, 2e-5  # ROUNDED: numbers in JSON files, which have 5 decimals


def write(name: str, facts: dict[str, Any]) -> int:
    """Write `facts` as the file of that name in tests/data; return its size in bytes."""
    blocks: list[np.ndarray] = []

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            blocks.append(value.astype("float32").ravel())
            return {MARK: list(value.shape)}
        if isinstance(value, dict):
            return {k: plain(v) for k, v in value.items()}
        return [plain(v) for v in value] if isinstance(value, (list, tuple)) else value

    words = json.dumps(plain(facts), separators=(",", ":"), sort_keys=False)
    numbers = np.concatenate([np.zeros(0, "float32"), *blocks])
    # Bytes of equal weight are stored together: exponents compress, low bits do not.
    planes = np.ascontiguousarray(numbers.view("uint8").reshape(-1, 4).T)
    path = DATA / f"{name}.npz"
    np.savez_compressed(path, words=np.frombuffer(words.encode(), "uint8"), planes=planes)
    return path.stat().st_size


def read(name: str) -> dict[str, Any]:
    """Return the facts in the file of that name in tests/data."""
    return read_file(DATA / f"{name}.npz")


def read_file(path: Path) -> dict[str, Any]:
    """Return the facts in a file that `write` wrote."""
    with np.load(path) as file:
        words, planes = file["words"].tobytes().decode(), file["planes"]
    numbers = np.ascontiguousarray(planes.T).view("float32").ravel()
    at = 0

    def whole(value: Any) -> Any:
        nonlocal at
        if isinstance(value, dict):
            if list(value) == [MARK]:
                shape = value[MARK]
                start, at = at, at + math.prod(shape)
                return numbers[start:at].reshape(shape)
            return {k: whole(v) for k, v in value.items()}
        return [whole(v) for v in value] if isinstance(value, list) else value

    facts = whole(json.loads(words))
    if at != len(numbers):
        raise ValueError(f"{path.name} holds {len(numbers)} numbers, {at} were expected")
    return facts


def expect_close(found: Any, expected: Any, what: str, tolerance: float = 1e-5) -> None:
    """Check shape and numbers: no number further off than `tolerance` of the largest one.

    Where all numbers are small, as gradients that cancel are, 0.1 is used as the largest.
    """
    a, b = np.asarray(found, "float64"), np.asarray(expected, "float64")
    assert a.shape == b.shape, f"{what}: shape {a.shape}, Keras {b.shape}"
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = np.abs(b[np.isfinite(b)])
    scale = max(float(finite.max()) if finite.size else 0.0, 0.1)
    with np.errstate(invalid="ignore"):
        off = np.where(same, 0.0, np.abs(a - b))
    worst = float(np.nan_to_num(off, nan=np.inf).max()) if off.size else 0.0
    assert worst <= tolerance * scale, (
        f"{what}: off by {worst:.3g} where the largest number is {scale:.3g}\n{a}\nKeras:\n{b}"
    )


def differences(path: Path, other: Path) -> list[str]:
    """Return in words how two files of facts differ, beyond what another machine explains."""
    if path.suffix == ".json":
        return _differences(json.loads(path.read_text()), json.loads(other.read_text()), "")
    with np.load(path) as file, np.load(other) as again:
        if "planes" not in file.files:
            return _differences(dict(file), dict(again), "")
    return _differences(read_file(path), read_file(other), "")


def _differences(a: Any, b: Any, where: str) -> list[str]:
    if type(a) is not type(b):
        return [f"{where}: {type(a).__name__} and {type(b).__name__}"]
    if isinstance(a, dict):
        found = [f"{where}/{k}: in only one file" for k in a.keys() ^ b.keys()]
        for key in a.keys() & b.keys():
            found += _differences(a[key], b[key], f"{where}/{key}")
        return found
    if isinstance(a, list) and len(a) == len(b):
        parts = (_differences(x, y, f"{where}[{i}]") for i, (x, y) in enumerate(zip(a, b)))
        return [d for part in parts for d in part]
    if isinstance(a, float):
        same = math.isclose(a, b, rel_tol=AGAIN, abs_tol=ROUNDED) or (a != a and b != b)
        return [] if same else [f"{where}: {a} and {b}"]
    if isinstance(a, np.ndarray):
        if a.dtype != b.dtype:
            return [f"{where}: {a.dtype} and {b.dtype}"]
        if a.dtype.kind not in "fc":
            return [] if np.array_equal(a, b) else [f"{where}: other numbers"]
        try:
            expect_close(b, a, where, AGAIN if a.dtype.itemsize > 2 else 1e-3)
        except AssertionError as error:
            return [str(error).partition("\n")[0]]
        return []
    return [] if a == b else [f"{where}: {a!r} and {b!r}"]
