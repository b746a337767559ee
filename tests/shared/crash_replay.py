"""A recorder of what a save does to its folder, and what a crash could leave of it.

The model of a crash: what was written to a file and not flushed by fsync may be on the disk or
not, each write by itself; names (new files, renames, removals) reach the disk in order, all that
was done before the last fsync of the folder for certain.
"""

from __future__ import annotations

import builtins
import io
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from kerasish.saving.files import atomic

Event = tuple[Any, ...]
State = dict[str, bytes | None]  # path below the folder -> content; None: a folder
_OPEN = builtins.open


class Recorder:
    """The events of one save, in order; the event numbered `fail` raises an error instead."""

    def __init__(self, folder: Path, fail: int = -1, number: int = 0) -> None:
        self.folder, self._fail, self._number = str(folder), fail, number
        self.events: list[Event] = []
        self._files = 0

    def note(self, *event: Any) -> None:
        if len(self.events) == self._fail:
            self._fail = -1
            raise OSError(self._number, os.strerror(self._number))
        self.events.append(event)

    def inside(self, path: Any) -> bool:
        return isinstance(path, str) and os.path.dirname(path).startswith(self.folder)

    def new_file(self) -> int:
        self._files += 1
        return self._files


class _File(io.FileIO):
    """A file whose writes are recorded."""

    def __init__(self, recorder: Recorder, where: Any, mode: str, number: int) -> None:
        super().__init__(where, mode)
        self._recorder, self._number = recorder, number

    def write(self, data: Any) -> int:
        text = bytes(memoryview(data).cast("B"))
        self._recorder.note("write", self._number, self.tell(), text)
        return super().write(text)

    def truncate(self, size: int | None = None) -> int:
        size = self.tell() if size is None else size
        self._recorder.note("truncate", self._number, size)
        return super().truncate(size)


@contextmanager
def recording(recorder: Recorder) -> Iterator[Recorder]:
    """Record what happens below the recorder's folder."""
    numbers: dict[int, Any] = {}  # of open files and folders, by descriptor
    real = {name: getattr(os, name) for name in ("open", "fdopen", "fsync", "close")}
    files: dict[str, int] = {}  # number of the file at a path

    def create(path: str) -> int:
        files[path] = recorder.new_file()
        recorder.note("create", path, files[path])
        return files[path]

    def os_open(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        watched = recorder.inside(path) or path == recorder.folder
        if watched and flags & os.O_CREAT:
            create(path)
        result = int(real["open"](path, flags, *rest, **options))
        if watched:
            numbers[result] = path if os.path.isdir(path) else files.get(path)
        return result

    def fdopen(number: int, mode: str = "r", *rest: Any, **options: Any) -> Any:
        if number in numbers:
            assert options.get("buffering") == 0
            return _File(recorder, number, mode, numbers[number])
        return real["fdopen"](number, mode, *rest, **options)

    def open_(path: Any, mode: str = "r", *rest: Any, **options: Any) -> Any:
        if not recorder.inside(path):
            return _OPEN(path, mode, *rest, **options)
        if mode == "rb+":  # to flush it
            raw = _File(recorder, path, "rb+", files[path])
            numbers[raw.fileno()] = files[path]
            return raw
        if not mode.startswith(("w", "x")):
            return _OPEN(path, mode, *rest, **options)
        raw = _File(recorder, path, "wb", create(path))
        numbers[raw.fileno()] = files[path]
        held = io.BufferedWriter(raw)
        return held if "b" in mode else io.TextIOWrapper(held, encoding=options.get("encoding"))

    def fsync(number: int) -> None:
        recorder.note("fsync", numbers[number])
        real["fsync"](number)

    def two(name: str) -> Callable[..., Any]:
        function = getattr(os, name)

        def run(one: Any, other: Any) -> None:
            recorder.note(name, one, other)
            function(one, other)
            files[other] = files.get(one, -1)

        return run

    def one(name: str) -> Callable[..., Any]:
        function = getattr(os, name)

        def run(path: Any, *rest: Any, **options: Any) -> None:
            if recorder.inside(path):
                recorder.note(name, path)
            function(path, *rest, **options)

        return run

    remove_tree, swap = shutil.rmtree, atomic.exchange

    def rmtree(path: Any, *rest: Any, **options: Any) -> None:
        if recorder.inside(path):
            recorder.note("rmtree", path)
            with patch.object(os, "unlink", unlink), patch.object(os, "open", real["open"]):
                remove_tree(path, *rest, **options)
        else:
            remove_tree(path, *rest, **options)

    def exchange(a: str, b: str) -> bool:
        recorder.note("exchange", a, b)
        assert swap(a, b), "this file system cannot exchange folders"
        return True

    def copyfile(source: Any, target: Any) -> Any:
        with open_(target, "wb") as file:
            file.write(Path(source).read_bytes())

    unlink = os.unlink
    with ExitStack() as stack:
        for name in ("replace", "rename", "link"):
            stack.enter_context(patch.object(os, name, two(name)))
        for name in ("remove", "mkdir"):
            stack.enter_context(patch.object(os, name, one(name)))
        for place, name, function in (
            (os, "open", os_open), (os, "fdopen", fdopen), (os, "fsync", fsync),
            (shutil, "rmtree", rmtree), (shutil, "copyfile", copyfile),
            (atomic, "exchange", exchange), (builtins, "open", open_),
        ):  # fmt: skip
            stack.enter_context(patch.object(place, name, function))
        yield recorder


# --- what remains ------------------------------------------------------------------------------


def snapshot(folder: Path) -> State:
    """Return the content of a folder."""
    result: State = {}
    for path in sorted(folder.rglob("*")):
        result[str(path)] = None if path.is_dir() else path.read_bytes()
    return result


_NAMES = {"create", "replace", "rename", "link", "remove", "mkdir", "rmtree", "exchange"}


def state_after(before: State, events: list[Event], kept: Callable[[int], bool]) -> State:
    """Return the content of the folder if those events are on the disk whose numbers are kept."""
    data: dict[int, bytearray] = {}
    names: dict[str, int | None] = {}
    for i, (path, content) in enumerate(before.items()):
        names[path] = None if content is None else -1 - i
        data[-1 - i] = bytearray(content or b"")
    for i, (kind, *what) in enumerate(events):
        if kind == "fsync" or not kept(i):
            continue
        if kind == "write":
            file = data.setdefault(what[0], bytearray())
            end = what[1] + len(what[2])
            file.extend(bytes(max(0, end - len(file))))
            file[what[1] : end] = what[2]
        elif kind == "truncate":
            file = data.setdefault(what[0], bytearray())
            del file[what[1] :]
            file.extend(bytes(what[1] - len(file)))
        elif kind == "create":
            names[what[0]] = what[1]
            data.setdefault(what[1], bytearray())
        elif kind == "mkdir":
            names[what[0]] = None
        elif kind == "link":
            names[what[1]] = names[what[0]]
        else:
            _rename(kind, what, names)
    return {path: None if n is None else bytes(data[n]) for path, n in sorted(names.items())}


def _rename(kind: str, what: list[Any], names: dict[str, int | None]) -> None:
    def take(path: str) -> dict[str, int | None]:
        inside = [p for p in names if p == path or p.startswith(f"{path}/")]
        return {p[len(path) :]: names.pop(p) for p in inside}

    first = take(what[0])
    if kind in ("remove", "rmtree"):
        return
    second = take(what[1])
    names.update({what[1] + rest: n for rest, n in first.items()})
    if kind == "exchange":
        names.update({what[0] + rest: n for rest, n in second.items()})


def crashes(before: State, events: list[Event], seeds: int = 4) -> Iterator[State]:
    """Yield what a crash after each event could leave: of a process, and of the power."""
    random = np.random.default_rng(0)
    for stop in range(len(events) + 1):
        done = events[:stop]
        yield state_after(before, done, lambda _: True)
        certain = _certain(done)
        loose = [i for i in range(stop) if i not in certain]
        named = [i for i in loose if done[i][0] in _NAMES]
        for seed in range(seeds):
            last = named[random.integers(len(named) + 1) - 1] if named else -1
            some = {i for i in loose if i not in named and seed and random.random() < seed / 4}
            some |= {i for i in named if i <= last and (seed or random.random() < 0.5)}
            yield state_after(before, done, (certain | some).__contains__)


def _certain(events: list[Event]) -> set[int]:
    """Return the events that an fsync has made certain."""
    result: set[int] = set()
    for at, (kind, *what) in enumerate(events):
        if kind != "fsync":
            continue
        for i, (other, *its) in enumerate(events[:at]):
            is_name = isinstance(what[0], str)
            if is_name and other in _NAMES and os.path.dirname(its[0]) == what[0]:
                result.add(i)
            if not is_name and other in ("write", "truncate") and its[0] == what[0]:
                result.add(i)
            if not is_name and other == "create" and its[1] == what[0]:
                result.add(i)  # a file that is flushed has a name
    return result


def laid_out(state: State, old: Path, new: Path) -> None:
    """Make a folder `new` that holds what `state` says of the folder `old`."""
    for path, content in state.items():
        place = new / os.path.relpath(path, old)
        place.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            place.mkdir(exist_ok=True)
        else:
            place.write_bytes(content)
