"""Compiled plans on disk: read again by what they depend on, ignored if anything is wrong."""

from __future__ import annotations

import os
import pickle
import pickletools
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
from plans_on_disk import X, empty_folder, mixed, only_file, run, same

import kerasish
from kerasish import config, environment, ops
from kerasish.backends import disk
from kerasish.backends.onednn import native
from kerasish.backends.static import engine
from kerasish.backends.static.lowering import saved_plans, units
from kerasish.backends.static.lowering.saved_plans import SavedPlans
from kerasish.backends.static.machine import guard_pages
from kerasish.graph.structure import digest_of, structure_of
from kerasish.graph.trace import trace
from kerasish.ops.op import REGISTRY, Op


@pytest.fixture(name="folder", autouse=True)
def _folder(tmp_path, monkeypatch):
    yield from empty_folder(tmp_path, monkeypatch)


def test_a_plan_is_read_again(folder):
    first, counts = run()
    assert counts == (0, 1)
    second, counts = run()
    assert counts == (1, 0) and same(first, second)
    assert only_file(folder).stat().st_mode & 0o777 == 0o600


# --- what a plan depends on -----------------------------------------------------------------------


V, W = (kerasish.Variable(np.ones(3, "float32")) for _ in range(2))


def assigning(one, other):
    def step(x):
        v, w = V + x, W * x
        one.assign(v)
        other.assign(w)

    return step


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x: x * 2.0, lambda x: x * 2.5),
        (lambda x: ops.sum(x, axis=0), lambda x: ops.sum(x, axis=1)),
        (lambda x: ops.sum(x, keepdims=True), lambda x: ops.reshape(ops.sum(x), (1, 1))),
        (lambda x: ops.exp(x), lambda x: ops.log(x)),
        (lambda x: (x + 1.0, x), lambda x: (x, x + 1.0)),
        (lambda x: x - ops.transpose(x), lambda x: ops.transpose(x) - x),
        (lambda x: x + np.eye(3, dtype="float32"), lambda x: x + np.ones((3, 3), "float32")),
        (lambda x: ops.cast(x, "int32"), lambda x: ops.cast(x, "int64")),
        (lambda x: ops.pad(x, 1), lambda x: ops.pad(x, 2)),
        (
            lambda x: ops.pad(x, 1, constant_values=0.0),
            lambda x: ops.pad(x, 1, constant_values=-0.0),
        ),
    ],
)
def test_other_graphs_are_not_mixed_up(one, other):
    x = np.arange(1, 10, dtype="float32").reshape(3, 3)
    want = {f: run(f, x) for f in (one, other)}
    assert [counts for _, counts in want.values()] == [(0, 1)] * 2
    for function in (one, other, one):
        result, counts = run(function, x)
        assert counts == (1, 0) and same(result, want[function][0])


def test_other_shapes_and_dtypes():
    double = lambda x: x * 2  # noqa: E731
    arrays = [X, X[:32], X.reshape(48, 64), X.astype("float64"), X.astype("int32")]
    assert [run(double, x)[1] for x in arrays] == [(0, 1)] * len(arrays)
    assert [run(double, x)[1] for x in arrays] == [(1, 0)] * len(arrays)


def test_which_variables_change():
    """Two steps of one graph assign its results to different variables."""
    x = np.arange(3, dtype="float32") + 2.0
    for read in (False, True):
        for one, other in ((V, W), (W, V)):
            V.assign(np.ones(3, "float32"))
            W.assign(np.ones(3, "float32") * 5)
            assert run(assigning(one, other), x)[1] == ((1, 0) if read else (0, 1))
            assert one.numpy().tolist() == (x + 1).tolist()
            assert other.numpy().tolist() == (x * 5).tolist()


def patched(target, name, value):
    return lambda patch: patch.setattr(target, name, value)


def variable(name, value):
    return lambda patch: patch.setenv(name, value)


SETTINGS = {
    "threads": lambda patch: config.set_threads(3),
    "level": lambda patch: config.set_optimize("none"),
    "processor": variable("KERASISH_CPU", "sse"),
    "bfloat16": variable("KERASISH_BFLOAT16", "float32"),
    "fork": patched(native, "forked", lambda: True),
    "no oneDNN": patched(
        engine, "native", SimpleNamespace(**{**vars(native), "available": lambda: "gone"})
    ),
    "target": patched(
        saved_plans, "host_target", lambda own=saved_plans.host_target: own()._replace(cpu="other")
    ),
    "place": patched(saved_plans, "_ROOT", os.path.join(saved_plans._ROOT, ".")),
    "Python": patched(sys, "version", "3.99"),
    "NumPy": patched(np, "__version__", "99"),
    "oneDNN": patched(native, "version", lambda: "3.99.0"),
    "instructions": patched(saved_plans, "instruction_set", lambda: 1),
    "OpenMP": patched(native, "symbol", lambda name: 0),
    "generator": patched(saved_plans, "kernel_key", lambda kernel, target: "k0"),
    "sources": patched(
        saved_plans, "_sources", lambda folder, deep: [("a.py", 1, 2, 3 + int(deep))]
    ),
}


@pytest.mark.filterwarnings("ignore:The static engine multiplies and convolves by BLAS")
@pytest.mark.parametrize("name", SETTINGS)
def test_each_setting_is_part_of_the_key(name, monkeypatch):
    config.set_threads(2)
    if name == "bfloat16":
        monkeypatch.setenv("KERASISH_BFLOAT16", "native")
    level = config.optimize()
    want, counts = run()
    assert counts == (0, 1)
    assert run()[1] == (1, 0)
    try:
        with monkeypatch.context() as patch:
            SETTINGS[name](patch)
            saved_plans._environment.cache_clear()
            result, counts = run()
            assert counts[0] == 0
            for a, b in zip(result, want):
                np.testing.assert_allclose(a, b, rtol=1e-5)
    finally:
        config.set_optimize(level)
        saved_plans._environment.cache_clear()


def test_training_is_part_of_the_key():
    """Parts of a training step may be shared differently among threads."""
    assert run()[1] == (0, 1)
    assert run(training=True)[1] == (0, 1)
    assert run(training=True)[1] == (1, 0)


def test_sources_are_those_that_run(tmp_path, monkeypatch):
    """A source changed after the import may not be what this process runs."""
    assert saved_plans._environment() is not None
    monkeypatch.setattr(environment, "IMPORTED", 0.0)
    saved_plans._environment.cache_clear()
    assert saved_plans._environment() is None
    assert run()[1] == (0, 0)


def test_a_changed_source_is_seen(tmp_path):
    (tmp_path / "sub").mkdir()
    for name in ("a.py", "sub/b.py", "notes.txt"):
        (tmp_path / name).write_text("x = 1\n")
    before = set(saved_plans._sources(str(tmp_path), True))
    assert len(before) == 2 and len(set(saved_plans._sources(str(tmp_path), False))) == 1
    changed = tmp_path / "sub" / "b.py"
    kept = changed.stat()
    time.sleep(0.05)  # more than the resolution of the clock of files
    changed.write_text("x = 2\n")
    os.utime(changed, ns=(kept.st_atime_ns, kept.st_mtime_ns))
    assert len(before & set(saved_plans._sources(str(tmp_path), True))) == 1


def test_the_sources_are_all_that_decide():
    """All modules of passes, ops and lowering that a step has loaded are among them."""
    root = saved_plans._ROOT
    known = set()
    for name in saved_plans._PACKAGES:
        sources = saved_plans._sources(os.path.join(root, name), bool(name))
        known |= {os.path.normpath(path) for path, *_ in sources}
    assert {os.path.join(root, name) for name in ("config.py", "watched.py")} <= known
    for part in ("graph", "ops", "backends"):
        loaded = {m.__file__ for n, m in sys.modules.items() if n.startswith(f"kerasish.{part}.")}
        assert len(loaded) > 10 and loaded <= known


# --- what is not saved ----------------------------------------------------------------------------


def looping(x):
    return ops.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2.0), (0, x))[1]


def test_some_graphs_have_no_digest():
    large = np.zeros((200, 200), "float32")
    for function in (looping, lambda x: x[:1, :1] + large):
        structure = structure_of(trace(function, X).graph)
        assert structure is None or digest_of(structure) is None
        assert run(function)[1] == (0, 0)
    assert digest_of(structure_of(trace(mixed, X).graph)) is not None


def test_ops_of_the_user_have_no_digest(monkeypatch):
    """Their names say nothing about what they compute."""
    graph = trace(lambda x: ops.exp(x), X).graph
    assert digest_of(structure_of(graph)) is not None
    own = REGISTRY["exp"]
    monkeypatch.setattr(own, "__module__", "somewhere")
    assert digest_of(structure_of(graph)) is None
    monkeypatch.undo()
    other = Op.__new__(Op)
    vars(other).update(vars(own))
    monkeypatch.setitem(REGISTRY, "exp", other)
    assert digest_of(structure_of(graph)) is None


def test_a_digest_tells_types_apart():
    values = [1, True, 1.0, "1", b"1", None, (1,), (True,), ((1,),), 0.0, -0.0, ()]
    from kerasish.graph.structure import _key  # the form of attributes in keys

    assert len({digest_of(_key(value)) for value in values}) == len(values)
    assert digest_of((X.shape, print)) is None and digest_of(_key(np.float32(1))) is None


@pytest.mark.parametrize("setting", ["KERASISH_CACHE_DIR", "KERASISH_STRICT_MEMORY", "debugging"])
def test_settings_that_save_nothing(setting, monkeypatch, capsys):
    assert run()[1] == (0, 1)
    if setting == "debugging":
        monkeypatch.setattr(config, "is_debugging", lambda: True)
    elif setting == "KERASISH_STRICT_MEMORY":
        monkeypatch.setattr(guard_pages, "mode", lambda: "end")
        assert SavedPlans()._path(()) is None
        return
    else:
        monkeypatch.setenv(setting, "")
    assert run()[1] == (0, 0)


def test_units_with_parts_of_this_process_are_not_saved():
    """No unit is saved unless it was checked to hold no address."""
    kept = set(saved_plans._UNITS)
    assert units.PythonUnit not in kept and units.EffectUnit not in kept
    assert run(lambda x: ops.sort(x))[1] == (0, 0)  # NumPy sorts


# --- files ----------------------------------------------------------------------------------------


def sealed(*objects):
    body = (saved_plans._environment() or "").encode() + b"".join(map(pickle.dumps, objects))
    return disk.seal(saved_plans.FORMAT, body)


class Harm:
    """What would run a program when it is read."""

    def __reduce__(self):
        return os.system, ("touch harmed",)


THREADS = (None, 1, 1, 0, 1)


def test_damaged_files_are_written_again(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    want, _ = run()
    path = only_file(folder)
    good = path.read_bytes()
    middle = len(good) // 2
    bad = {
        "empty": b"", "short": good[:20], "half": good[:middle], "longer": good + b"\0",
        "flipped": good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :],
        "other mark": good.replace(saved_plans.FORMAT, b"kerasish plans 0\n"),
        "other environment": disk.seal(
            saved_plans.FORMAT, b"0" * 64 + disk.unseal(saved_plans.FORMAT, good)[64:]
        ),
        "no pickle": disk.seal(saved_plans.FORMAT, (saved_plans._environment() or "").encode()),
        "no plan": sealed(THREADS, [1, 2]), "no threads": sealed("x"),
        "foreign": sealed(THREADS, Harm()),
    }  # fmt: skip
    for name, data in bad.items():
        path.write_bytes(data)
        result, counts = run()
        assert counts == (0, 1), name
        assert same(result, want), name
        assert run()[1] == (1, 0), name
    assert not (tmp_path / "harmed").exists()


def test_another_library_makes_another_plan(monkeypatch):
    """A primitive that needs other memory than the plan provides."""
    x = X.repeat(4, axis=0)
    want, counts = run(ops.matmul, x, x.T.copy())
    assert counts == (0, 1)
    own = units.RecreatedUnit.planned
    monkeypatch.setattr(units.RecreatedUnit, "planned", lambda self: (*own(self)[:3], 64, 0, 0, 0))
    result, counts = run(ops.matmul, x, x.T.copy())
    assert counts == (0, 1) and same(result, want)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no POSIX owners")
def test_a_folder_that_others_can_write_is_not_used(folder):
    assert run()[1] == (0, 1)
    folder.chmod(0o777)
    with pytest.warns(RuntimeWarning, match="compiled plans in .* are not used"):
        assert run()[1] == (0, 0)
    folder.chmod(0o700)
    assert run()[1] == (1, 0)


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KERASISH_CACHE_DIR", str(tmp_path / "file"))
    assert run()[1] == (0, 0)


def test_files_hold_no_addresses(folder):
    """No large integer: an address of this process would be one."""
    run()
    data = disk.unseal(saved_plans.FORMAT, only_file(folder).read_bytes())[64:]
    numbers = []
    for pickled in (data, data[data.index(b".") + 1 :]):
        numbers += [a for _, a, _ in pickletools.genops(pickled) if type(a) is int]
    assert len(numbers) > 100 and max(map(abs, numbers)) < 1 << 32
