"""The kernel cache: memory, disk, damage, many processes, code without addresses."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from kerasish.backends.onednn import native
from kerasish.backends.static.codegen import kernels, packed, thin
from kerasish.backends.static.codegen.description import KernelBuilder
from kerasish.backends.static.machine import emission, machine_code

SCRIPT = """
import sys, ctypes
import numpy as np
from kerasish.backends.static.codegen import kernels
from kerasish.backends.static.codegen.driver import load_runtime
from kerasish.backends.static.codegen import arguments
from kerasish.backends.static.codegen.description import KernelBuilder
built = []
for number in range(3):
    k = KernelBuilder()
    x = k.input("float32")
    k.output(k.op("tanh", x) + float(number) + k.op("sin", x) * 0.0)
    built.append(k.build())
addresses = kernels.compile_many(built)
x = np.linspace(-50, 50, 77).astype(np.float32)
for number, (kernel, address) in enumerate(zip(built, addresses)):
    y = np.zeros_like(x)
    block = arguments.pack(kernel, [x.ctypes.data, y.ctypes.data], columns=77,
                           table=load_runtime().table)
    assert ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(address)(block.ctypes.data) == 0
    assert np.allclose(y, np.tanh(x) + number, atol=1e-5)
print(kernels.statistics.compiled, kernels.statistics.read, "llvmlite" in sys.modules)
"""


def start(folder):
    root = Path(kernels.__file__).parents[4]
    environment = {**os.environ, "KERASISH_CACHE_DIR": str(folder), "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = str(root)
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT], env=environment, text=True, cwd=root,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def finish(process):
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    compiled, read, imported = out.split()
    return int(compiled), int(read), imported == "True"


def some_kernel(number=1.0):
    k = KernelBuilder()
    k.output(k.input("float32") * number)
    return k.build()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("KERASISH_CACHE_DIR", str(tmp_path))
    kernels.forget()
    return tmp_path


def count(action):
    before = kernels.statistics.compiled, kernels.statistics.read
    action()
    return kernels.statistics.compiled - before[0], kernels.statistics.read - before[1]


def test_a_second_process_compiles_nothing_and_needs_no_code_generator(tmp_path):
    first, read, imported = finish(start(tmp_path))
    assert first > 3
    assert (read, imported) == (0, True)
    compiled, read, imported = finish(start(tmp_path))
    assert (compiled, read) == (0, first)
    # Where flat images are not made (another platform), objects need llvmlite to be loaded.
    assert imported is (machine_code.host_target().level == "generic")


@pytest.mark.slow
def test_many_processes_at_once(tmp_path):
    results = [finish(process) for process in [start(tmp_path) for _ in range(4)]]
    assert len({compiled + read for compiled, read, _ in results}) == 1
    assert not list(tmp_path.rglob(".new-*"))


def test_equal_structures_compile_once(folder):
    assert count(lambda: kernels.compile_many([some_kernel(), some_kernel()])) == (1, 0)
    assert count(lambda: kernels.compile_one(some_kernel())) == (0, 0)
    assert kernels.compile_one(some_kernel()) != kernels.compile_one(some_kernel(2.0))
    kernels.forget()
    assert count(lambda: kernels.compile_many([some_kernel(), some_kernel(2.0)])) == (0, 2)


def test_kernels_compiled_on_several_threads_are_those_of_one(folder, monkeypatch, run_kernel):
    monkeypatch.setattr(kernels, "LEAST_TEXT", 1)
    monkeypatch.setattr(native, "get_threads", lambda: 3)
    several = [some_kernel(float(n)) for n in range(40, 47)]
    assert count(lambda: kernels.compile_many(several)) == (7, 0)
    assert sum(p.is_file() for p in (folder / "kernels").iterdir()) == 3
    x = np.arange(9, dtype=np.float32)
    for turn in range(2):
        for n, kernel in enumerate(several):
            y = np.zeros_like(x)
            assert run_kernel(kernel, [x, y], columns=9) == 0
            np.testing.assert_array_equal(y, x * np.float32(40 + n))
        if not turn:
            kernels.forget()
            assert count(lambda: kernels.compile_many(several)) == (0, 7)


def test_one_of_several_modules_that_is_wrong_is_an_error():
    text = "define i32 @f() {\n  ret i32 0\n}"
    machine = partial(machine_code.new_machine, machine_code.host_target())
    assert len(emission.compile_modules([text, text.replace("@f", "@g")], machine)) == 2
    for texts in ([text, "define i32"], ["define i32", text], ["define i32"]):
        with pytest.raises(RuntimeError, match="parsing error"):
            emission.compile_modules(texts, machine)


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "gone", "pointer"])
def test_damaged_entries_are_built_again(folder, run_kernel, damage):
    kernels.compile_one(some_kernel())
    (pack,) = (p for p in (folder / "kernels").iterdir() if p.is_file())
    data = bytearray(pack.read_bytes())
    if damage == "gone":
        pack.unlink()
    elif damage == "pointer":
        key = kernels.kernel_key(some_kernel(), machine_code.host_target())
        (folder / "kernels" / key[1:3] / key).write_bytes(b"\xff../../etc")
    else:
        data[-20] ^= 1
        pack.write_bytes({"cut": data[:-10], "flip": data, "empty": b""}[damage])
    kernels.forget()
    assert count(lambda: kernels.compile_one(some_kernel())) == (1, 0)
    x = np.arange(9, dtype=np.float32)
    y = np.zeros_like(x)
    assert run_kernel(some_kernel(), [x, y], columns=9) == 0
    np.testing.assert_array_equal(x, y)
    kernels.forget()
    assert count(lambda: kernels.compile_one(some_kernel())) == (0, 1)


@pytest.mark.parametrize("obstacle", ["file", "read-only", "off"])
def test_without_a_folder_the_memory_serves(tmp_path, monkeypatch, obstacle):
    place = tmp_path / "cache"
    if obstacle == "file":
        place.write_text("in the way")
    elif obstacle == "read-only":
        place.mkdir()
        place.chmod(stat.S_IRUSR | stat.S_IXUSR)
    monkeypatch.setenv("KERASISH_CACHE_DIR", "" if obstacle == "off" else str(place))
    kernels.forget()
    assert count(lambda: kernels.compile_one(some_kernel(3.0))) == (1, 0)
    assert count(lambda: kernels.compile_one(some_kernel(3.0))) == (0, 0)
    if obstacle == "off":
        assert not list(tmp_path.iterdir())


def test_the_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("KERASISH_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert kernels.cache_folder() == tmp_path / "kerasish" / "kernels"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert kernels.cache_folder() == tmp_path / ".cache" / "kerasish" / "kernels"


def test_other_targets_have_other_keys():
    host = machine_code.host_target()
    other = machine_code.Target("sse", "x86-64-v2")
    if host.level != "sse":
        assert kernels.kernel_key(some_kernel(), host) != kernels.kernel_key(some_kernel(), other)
    assert kernels.kernel_key(some_kernel(), host) != kernels.kernel_key(some_kernel(2.0), host)


def test_objects_load_where_images_cannot(monkeypatch, folder, run_kernel):
    """The way of other platforms: llvmlite links the object."""
    monkeypatch.setattr(machine_code, "link_flat", lambda data, symbols: None)
    k = KernelBuilder()
    k.output(k.op("exp", k.input("float32")) * 7.0)
    kernel = k.build()
    kernels.compile_one(kernel)
    kernels.forget()
    assert count(lambda: kernels.compile_one(kernel)) == (0, 1)
    x = np.linspace(-3, 3, 50).astype(np.float32)
    y = np.zeros_like(x)
    assert run_kernel(kernel, [x, y], columns=50) == 0
    np.testing.assert_allclose(y, np.exp(x) * 7, rtol=1e-6)


def test_the_code_holds_no_address(folder):
    """The same structure gives the same bytes in another process: nothing of this one is in it."""
    target = machine_code.host_target()
    key = kernels.kernel_key(some_kernel(5.0), target)
    (code,) = kernels.build({key: some_kernel(5.0)}, target)
    assert kernels.unpack(kernels.pack(code)) == code
    here = [kernels.compile_one(some_kernel(5.0)), id(folder)]
    assert all(a.to_bytes(8, "little") not in code.data for a in here)


def test_the_processor_can_be_held_back(monkeypatch):
    if machine_code.host_target("sse").level == "generic":
        pytest.skip("levels are those of x86-64; this is another processor")
    assert machine_code.host_target("sse").level == "sse"
    monkeypatch.setenv("KERASISH_CPU", "sse")
    assert machine_code.host_target().level == "sse"
    monkeypatch.setenv("KERASISH_CPU", "avx2")
    assert machine_code.host_target().level in ("avx2", "sse")


def test_unknown_levels_of_processors_are_refused(monkeypatch):
    monkeypatch.setenv("KERASISH_CPU", "nope")
    with pytest.raises(ValueError, match="KERASISH_CPU='nope': .*'avx512', 'avx2', 'sse'"):
        machine_code.host_target()
    with pytest.raises(ValueError, match="KERASISH_CPU"):
        kernels.compile_one(some_kernel(97.0))
    with pytest.raises(ValueError, match="limit is one of .*got 'AVX2'"):
        machine_code.host_target("AVX2")


@pytest.mark.parametrize("level", ["avx512", "avx2", "sse"])
def test_every_level_can_be_compiled_here(level):
    """AVX-512 code is made (not run) on processors that lack it."""
    if machine_code.host_target("sse").level == "generic":
        pytest.skip("levels are those of x86-64; this is another processor")
    cpu = {"avx512": "x86-64-v4", "avx2": "x86-64-v3", "sse": "x86-64-v2"}[level]
    (code,) = kernels.build({"k": some_kernel()}, machine_code.Target(level, cpu))
    assert code.kind == ("image" if sys.platform.startswith("linux") else "object")


def test_equal_fields_of_two_kinds_are_two_kernels(folder):
    """Descriptions are tuples: without their type, these would be one."""
    several, one = packed.PackedProduct(1, 8, True), thin.ThinProduct(1, 8, True)
    assert several == one
    assert len({*kernels.compile_many([several, one, several])}) == 2
    kernels.forget()
    assert kernels.compile_one(one) != kernels.compile_one(several)


def test_generators_come_when_no_cache_holds_the_code(folder):
    code = (
        "import sys\n"
        "from kerasish.backends.static.codegen import kernels\n"
        "from kerasish.backends.static.codegen.description import KernelBuilder\n"
        "k = KernelBuilder()\n"
        "k.output(k.input('float32') * 3.0)\n"
        "kernels.compile_one(k.build())\n"
        "print('kerasish.backends.static.codegen.generate' in sys.modules)\n"
    )
    outputs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        for _ in range(2)
    ]
    assert [output.stdout for output in outputs] == ["True\n", "False\n"], outputs


def test_what_describes_no_kernel_is_refused():
    with pytest.raises(TypeError, match="no code can be generated for a str: 'x'"):
        kernels.texts({"k1": "x"}, machine_code.host_target())


def test_a_pack_is_read_once_for_all_of_its_kernels(folder, monkeypatch):
    both = [some_kernel(3.0), some_kernel(4.0)]
    kernels.compile_many(both)
    kernels.forget()
    asked, pack_of = [], kernels._pack_of
    monkeypatch.setattr(kernels, "_pack_of", lambda *given: asked.append(given) or pack_of(*given))
    assert count(lambda: kernels.compile_many(both)) == (0, 2) and len(asked) == 1
    kernels.forget()
    assert count(lambda: kernels.compile_one(both[0])) == (0, 1) and len(asked) == 2
    assert count(lambda: kernels.compile_one(both[1])) == (0, 1) and len(asked) == 2
