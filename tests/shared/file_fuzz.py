"""Files broken at random, but always the same ones, and a process of its own that loads them.

`python file_fuzz.py FORMAT START STOP FOLDER` loads the files START..STOP-1 of a format, and
prints a line of JSON before and after each: what a crash of the process, or a hang, belongs to.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

import kerasish as keras
from kerasish import layers

FORMATS = ("keras", "weights.h5", "h5", "safetensors")
GOLDEN = Path(__file__).parents[1] / "data" / "golden"
LONGEST = 20  # seconds for one file; a whole one takes milliseconds
MEMORY = 2**30  # bytes that loading may take on top of what the process has


def make() -> Any:
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(3), layers.BatchNormalization(), layers.Dense(2)]
    )
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    return model


def sources(ending: str, folder: Path) -> list[bytes]:
    """Return whole files of a format: of ours, without checksums, and of Keras."""
    path = folder / f"whole.{ending}"
    model = make()
    (model.save if ending in ("keras", "h5") else model.save_weights)(path)
    result = [path.read_bytes()]
    if ending in ("weights.h5", "h5"):
        result.append(_without_checksums(result[0]))
    if ending in ("keras", "h5"):
        names = (p.name for p in sorted(GOLDEN.glob(f"m*.{ending}")))
        result += [(GOLDEN / n).read_bytes() for n in names if not n.endswith(".weights.h5")]
    return result


def _without_checksums(data: bytes) -> bytes:
    """Keras writes none: what is read from a file of its goes further."""
    import h5py

    held = io.BytesIO(data)

    def strip(_: str, item: Any) -> None:
        item.attrs.pop("crc32", None)

    with h5py.File(held, "r+") as file:
        file.visititems(strip)
    return held.getvalue()


# --- breaking ----------------------------------------------------------------------------------

_STRANGE: list[Any] = [
    None, True, -1, 0, 2**31, 2**63, -(2**70), 1e308, float("nan"), "", "x" * 1000, "../../x", [],
    {}, [None], {"class_name": "Dense", "config": {}}, {"class_name": "__lambda__", "config": {}},
    {"class_name": "function", "config": "system", "module": "os"}, [[[[[[[[]]]]]]]],
    {"class_name": "__numpy__", "config": {"value": [1], "dtype": "object"}},
]  # fmt: skip


def broken(data: bytes, ending: str, random: np.random.Generator) -> bytes:
    """Return a file cut off, with flipped bits or overwritten bytes, or with fields exchanged."""
    kinds = [_cut, _flip, _flip_front, _overwrite, _exchange, _number]
    if ending in ("keras", "h5"):
        kinds += [_json, _json]
    if ending == "keras":
        kinds += [_member]
    return kinds[random.integers(len(kinds))](data, random)


def _cut(data: bytes, random: np.random.Generator) -> bytes:
    return data[: random.integers(len(data))]


def _flip(data: bytes, random: np.random.Generator, within: int | None = None) -> bytes:
    created = bytearray(data)
    for at in random.integers(within or len(data), size=random.integers(1, 20)):
        created[at] ^= 1 << random.integers(8)
    return bytes(created)


def _flip_front(data: bytes, random: np.random.Generator) -> bytes:
    """One to three bits, near fields that are not zero: where HDF5 keeps its headers."""
    created = bytearray(data)
    full = np.flatnonzero(np.frombuffer(data, "uint8"))
    for at in random.choice(full, size=random.integers(1, 4)):
        created[at] ^= 1 << random.integers(8)
    return bytes(created)


def _overwrite(data: bytes, random: np.random.Generator) -> bytes:
    created = bytearray(data)
    at, size = random.integers(len(data)), int(random.integers(1, 9))
    created[at : at + size] = random.choice([b"\x00", b"\xff", b"\x7f"]) * size
    return bytes(created[: len(data)])


def _exchange(data: bytes, random: np.random.Generator) -> bytes:
    created = bytearray(data)
    one, two = 8 * random.integers((len(data) - 16) // 8, size=2)
    created[one : one + 8], created[two : two + 8] = created[two : two + 8], created[one : one + 8]
    return bytes(created)


def _number(data: bytes, random: np.random.Generator) -> bytes:
    """A field of 1 to 8 bytes becomes a number that is often wrong: sizes, counts, addresses."""
    created = bytearray(data)
    size = int(random.choice([1, 2, 4, 8]))
    at = int(random.integers(len(data) // size - 1)) * size
    old = int.from_bytes(created[at : at + size], "little")
    new = random.choice([old + 1, old - 1, old * 2, 0, 2 ** (8 * size) - 1, len(data), at, 8])
    created[at : at + size] = (int(new) % 2 ** (8 * size)).to_bytes(size, "little")
    return bytes(created)


def _member(data: bytes, random: np.random.Generator) -> bytes:
    """An archive whose checksums are right and whose HDF5 file is broken."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {n: archive.read(n) for n in archive.namelist()}
    name = "model.weights.h5"
    members[name] = broken(members[name], "weights.h5", random)
    return _zipped(members)


def _zipped(members: dict[str, bytes]) -> bytes:
    created = io.BytesIO()
    with zipfile.ZipFile(created, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return created.getvalue()


def _json(data: bytes, random: np.random.Generator) -> bytes:
    """Fields of the config exchanged, or replaced by strange values."""
    if data[:2] == b"PK":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {n: archive.read(n) for n in archive.namelist()}
        config = json.loads(members["config.json"])
        members["config.json"] = json.dumps(_changed(config, random)).encode()
        return _zipped(members)
    import h5py

    held = io.BytesIO(data)
    with h5py.File(held, "r+") as file:
        keys = [k for k in ("model_config", "training_config") if k in file.attrs]
        key = keys[random.integers(len(keys))]
        file.attrs[key] = json.dumps(_changed(json.loads(file.attrs[key]), random))
    return held.getvalue()


def _changed(config: Any, random: np.random.Generator) -> Any:
    places: list[tuple[Any, Any]] = []

    def visit(value: Any) -> None:
        for key in value if isinstance(value, dict) else range(len(value)):
            places.append((value, key))
            if isinstance(value[key], (dict, list)):
                visit(value[key])

    visit(config)
    for _ in range(random.integers(1, 4)):
        (one, a), (two, b) = (places[i] for i in random.integers(len(places), size=2))
        if isinstance(two, dict) and b not in two:
            continue  # taken out a moment ago
        if random.random() < 0.4:
            one[a] = json.loads(json.dumps(two[b]))
        elif random.random() < 0.3 and isinstance(one, dict):
            one.pop(a, None)
        else:
            one[a] = _STRANGE[random.integers(len(_STRANGE))]
    return config


# --- loading -----------------------------------------------------------------------------------


def attempt(path: Path, ending: str) -> str:
    """Return "whole", "error", or what is wrong with the way a file was refused."""
    model = make() if ending not in ("keras", "h5") else None
    before = [v.numpy().copy() for v in model.variables] if model else []
    try:
        if model is not None:
            model.load_weights(path)
        else:
            assert keras.saving.load_model(path).layers is not None
        return "whole"
    except (ValueError, OSError) as error:
        text = str(error)
        if path.name not in text:
            return f"unclear: does not name the file: {error!r}"
        if len(text) > 20_000:
            return f"unclear: {len(text)} characters"
    except _TooLong:
        return "hang"
    except Exception as error:  # noqa: BLE001 (whatever it is, it is the finding)
        return f"unclear: {type(error).__name__}: {error}"
    for v, old in zip(model.variables if model else [], before, strict=True):
        if not np.array_equal(v.numpy(), old, equal_nan=True):
            return f"changed: {v.path}"
    return "error"


class _TooLong(BaseException):
    pass


def _alarm(*_: Any) -> None:
    raise _TooLong


def _limit() -> None:
    if sys.platform == "linux":
        import resource

        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, _alarm)


def main(ending: str, start: int, stop: int, folder: Path) -> None:
    warnings.simplefilter("ignore")
    whole = sources(ending, folder)
    for data in whole:  # whatever is imported or compiled on first use, is, before the limits
        (folder / f"f.{ending}").write_bytes(data)
        attempt(folder / f"f.{ending}", ending)
    _limit()
    for number in range(start, stop):
        random = np.random.default_rng([number, FORMATS.index(ending)])
        path = folder / f"f.{ending}"
        path.write_bytes(broken(whole[number % len(whole)], ending, random))
        print(json.dumps({"begin": number}), flush=True)
        if hasattr(signal, "SIGALRM"):
            signal.alarm(LONGEST)
        began = time.perf_counter()
        result = attempt(path, ending)
        if hasattr(signal, "SIGALRM"):
            signal.alarm(0)
        took = round(time.perf_counter() - began, 3)
        print(json.dumps({"end": number, "result": result, "seconds": took}), flush=True)


def run(ending: str, count: int, folder: Path) -> dict[str, Any]:
    """Return what happened to `count` files: counts, and the numbers of the bad ones."""
    result: dict[str, Any] = {"whole": 0, "error": 0, "bad": {}, "slowest": 0.0}
    at = 0
    while at < count:
        command = [sys.executable, __file__, ending, str(at), str(count), str(folder)]
        root = str(Path(keras.__file__).parents[1])
        environment = {**os.environ, "PYTHONPATH": root, "PYTHONFAULTHANDLER": "1"}
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment,
            timeout=(count - at) * 1.0 + 120,
        )  # fmt: skip
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        begun = [line["begin"] for line in lines if "begin" in line]
        if not begun:
            raise RuntimeError(f"the process did not begin: {done.stderr[-3000:]}")
        for line in (x for x in lines if "end" in x):
            result["slowest"] = max(result["slowest"], line["seconds"])
            if line["result"] in ("whole", "error"):
                result[line["result"]] += 1
            else:
                result["bad"][line["end"]] = line["result"]
        at = begun[-1] + 1
        if done.returncode:
            result["bad"][begun[-1]] = f"crash: {done.returncode}: {done.stderr[-1500:]}"
    return result


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
