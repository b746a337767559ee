"""Native libraries from Java, on another processor under an emulator, and as WebAssembly."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kerasish
from kerasish import layers, ops

# The interface of Java 22 and later, and the one that Java 17 has as an incubating module.
JAVA = """
import java.lang.foreign.*;
import static java.lang.foreign.ValueLayout.*;

public class Predict {
    public static void main(String[] arguments) throws Throwable {
        System.load(arguments[0]);
        var predict = Linker.nativeLinker().downcallHandle(
            SymbolLookup.loaderLookup().find("m_predict").get(),
            FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS, JAVA_LONG, ADDRESS));
        float[] facts = { FACTS };
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment x = arena.allocateFrom(JAVA_FLOAT, facts);
            MemorySegment y = arena.allocate(JAVA_FLOAT, 6);
            int code = (int) predict.invokeExact(x, y, 2L, MemorySegment.NULL);
            if (code != 0) System.exit(code);
            for (float v : y.toArray(JAVA_FLOAT)) System.out.println(v);
        }
    }
}
"""
JAVA_17 = """
import java.lang.invoke.MethodType;
import jdk.incubator.foreign.*;

public class Predict {
    public static void main(String[] arguments) throws Throwable {
        System.load(arguments[0]);
        var pointer = MemoryAddress.class;
        var predict = CLinker.getInstance().downcallHandle(
            SymbolLookup.loaderLookup().lookup("m_predict").get(),
            MethodType.methodType(int.class, pointer, pointer, long.class, pointer),
            FunctionDescriptor.of(CLinker.C_INT, CLinker.C_POINTER, CLinker.C_POINTER,
                                  CLinker.C_LONG, CLinker.C_POINTER));
        float[] facts = { FACTS };
        try (ResourceScope scope = ResourceScope.newConfinedScope()) {
            SegmentAllocator memory = SegmentAllocator.ofScope(scope);
            MemorySegment x = memory.allocateArray(CLinker.C_FLOAT, facts);
            MemorySegment y = memory.allocateArray(CLinker.C_FLOAT, 6);
            int code = (int) predict.invokeExact(x.address(), y.address(), 2L, MemoryAddress.NULL);
            if (code != 0) System.exit(code);
            for (float v : y.toFloatArray()) System.out.println(v);
        }
    }
}
"""


def java_of(least: int, most: int) -> str:
    """Return the path of a `java` with a compiler, of a version in a range; skip without one."""
    homes = [*Path("/usr/lib/jvm").glob("*/bin"), *Path("/Library/Java").rglob("Home/bin")]
    for name in [shutil.which("java"), *(str(home / "java") for home in sorted(homes))]:
        if name is None or shutil.which("javac", path=str(Path(name).resolve().parent)) is None:
            continue
        done = subprocess.run([name, "-version"], capture_output=True, text=True, check=False)
        version = re.search(r'version "(\d+)', done.stderr)
        if version and least <= int(version.group(1)) <= most:
            return name
    pytest.skip(f"there is no Java compiler (a JDK) of version {least} to {most}")


def mlp() -> Any:
    x = kerasish.Input((20,), name="facts")
    return kerasish.Model(x, layers.Dense(3, activation="softmax")(layers.Dense(24, "relu")(x)))


@pytest.mark.parametrize("versions", [(22, 99), (17, 17)])
def test_from_java(tmp_path: Path, versions: tuple[int, int]) -> None:
    command = [java_of(*versions), "--enable-native-access=ALL-UNNAMED"]
    program = JAVA
    if versions == (17, 17):
        command, program = [*command, "--add-modules", "jdk.incubator.foreign"], JAVA_17
    model = mlp()
    model.export(tmp_path / "m", format="native", verbose=False)
    library = next((p for p in tmp_path.glob("m.*") if p.suffix in (".so", ".dylib")), None)
    if library is None:
        pytest.skip("there is no C compiler on this machine")
    x = np.random.default_rng(0).uniform(-1, 1, (2, 20)).astype("float32")
    facts = ", ".join(f"{v!r}f" for v in x.reshape(-1).tolist())
    (tmp_path / "Predict.java").write_text(program.replace("FACTS", facts))
    command = [*command, "Predict.java", str(library)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results = np.array([float(line) for line in done.stdout.split()])
    np.testing.assert_allclose(results, model.predict(x, verbose=0).reshape(-1), rtol=0, atol=1e-6)


def network() -> Any:
    """Products, convolutions of all kinds, poolings, recurrent layers, functions of libm."""
    x = kerasish.Input((6, 8, 3))
    y = layers.Conv2D(18, 3, padding="same", activation="relu")(x)
    y = layers.BatchNormalization()(layers.MaxPooling2D()(y))
    y = layers.DepthwiseConv2D(2, activation="gelu")(y)
    y = layers.Conv2DTranspose(4, 3, strides=2)(y)
    y = layers.LSTM(7, return_sequences=True)(layers.Reshape((5, -1))(y))
    y = layers.MultiHeadAttention(2, 4)(y, ops.arctan2(y, 0.5))
    return kerasish.Model(x, layers.Dense(3, activation="softmax")(layers.GRU(5)(y)))


def write_program(folder: Path, x: Any) -> None:
    """Write a program in C that reads x of 9 examples and prints their results, and x."""
    x.tofile(folder / "x")
    (folder / "p.c").write_text(f"""
#include "m.h"
#include <stdio.h>
int main(void) {{
    static float x[{x.size}], y[27];
    if (fread(x, 4, {x.size}, stdin) != {x.size}) return 90;
    int code = m_predict(x, y, 9, 0);
    if (code) {{ fputs(m_message(code), stderr); return code; }}
    for (int i = 0; i < 27; i++) printf("%.9g\\n", y[i]);
    return 0;
}}
""")


def test_on_aarch64_under_an_emulator(tmp_path: Path) -> None:
    for program in ("aarch64-linux-gnu-gcc", "qemu-aarch64"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    model = network()
    model.export(tmp_path / "m", format="native", verbose=False, target="aarch64")
    head = (tmp_path / "m.so").read_bytes()[:20]
    assert head[:4] == b"\x7fELF" and int.from_bytes(head[18:20], "little") == 183  # AArch64
    x = np.random.default_rng(0).uniform(-1, 1, (9, 6, 8, 3)).astype("float32")
    write_program(tmp_path, x)
    build = ["aarch64-linux-gnu-gcc", "-static", "p.c", "-o", "p", "m.o", "-lm"]
    subprocess.run(build, cwd=tmp_path, check=True)
    with open(tmp_path / "x", "rb") as source:
        done = subprocess.run(
            ["qemu-aarch64", "./p"], cwd=tmp_path, stdin=source, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = np.array([float(line) for line in done.stdout.split()]).reshape(9, 3)
    np.testing.assert_allclose(results, model.predict(x, verbose=0), rtol=0, atol=2e-6)


@pytest.mark.slow  # Wine makes a folder for its settings first
def test_on_windows_under_wine(tmp_path: Path) -> None:
    wine = shutil.which("wine64") or shutil.which("wine64", path="/usr/lib/wine")
    compiler = shutil.which("x86_64-w64-mingw32-gcc")
    if wine is None or compiler is None:
        pytest.skip("wine64 or x86_64-w64-mingw32-gcc is not installed")
    model = network()
    targets = ["x86-64-v2", "x86-64-v3", "x86-64-v4"]
    model.export(tmp_path / "m", format="native", verbose=False, target=targets, system="windows")
    x = np.random.default_rng(0).uniform(-1, 1, (9, 6, 8, 3)).astype("float32")
    write_program(tmp_path, x)
    text = (
        (tmp_path / "p.c")
        .read_text()
        .replace("    if (fread", "    _setmode(0, 0x8000);\n    if (fread")
    )
    (tmp_path / "p.c").write_text(f"#include <io.h>\n{text}")  # 0x8000: _O_BINARY
    subprocess.run([compiler, "p.c", "m.o", "-o", "p.exe"], cwd=tmp_path, check=True)
    settings = {**os.environ, "WINEPREFIX": str(tmp_path / "wine"), "WINEDEBUG": "-all"}
    with open(tmp_path / "x", "rb") as source:
        done = subprocess.run(
            [wine, "p.exe"], cwd=tmp_path, stdin=source, capture_output=True, text=True,
            check=False, env=settings,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = np.array([float(line) for line in done.stdout.split()]).reshape(9, 3)
    np.testing.assert_allclose(results, model.predict(x, verbose=0), rtol=0, atol=2e-6)


NODE = """
const fs = require("fs");
WebAssembly.instantiate(fs.readFileSync("m.wasm")).then(({ module, instance }) => {
    if (WebAssembly.Module.imports(module).length) process.exit(91);
    const { memory, malloc, free, m_predict, m_message, m_target } = instance.exports;
    const text = (p) => {
        const bytes = new Uint8Array(memory.buffer, p);
        return Buffer.from(bytes.subarray(0, bytes.indexOf(0))).toString();
    };
    const given = fs.readFileSync("x");
    const x = malloc(given.length), y = malloc(4 * 27);
    new Uint8Array(memory.buffer, x, given.length).set(given);
    const code = m_predict(x, y, 9n, 0);
    if (code) { console.error(text(m_message(code))); process.exit(code); }
    new Float32Array(memory.buffer, y, 27).forEach((v) => console.log(v));
    console.log(text(m_target()));
    console.log(text(m_message(m_predict(0, y, 9n, 0))));
    free(x), free(y);
});
"""


def test_as_webassembly_in_node(tmp_path: Path) -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    model = network()
    model.export(tmp_path / "m", format="native", verbose=False, target="wasm32")
    assert (tmp_path / "m.o").read_bytes()[:4] == b"\0asm"
    if not (tmp_path / "m.wasm").exists():
        assert "wasm-ld and the C library" in (tmp_path / "m.README.md").read_text()
        pytest.skip("wasm-ld or the C library of WASI is not installed")
    x = np.random.default_rng(0).uniform(-1, 1, (9, 6, 8, 3)).astype("float32")
    x.tofile(tmp_path / "x")
    (tmp_path / "p.js").write_text(NODE)
    done = subprocess.run(
        ["node", "p.js"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    *numbers, target, message = done.stdout.splitlines()
    assert target == "wasm32" and message == "an input or output is NULL"
    results = np.array(list(map(float, numbers))).reshape(9, 3)
    np.testing.assert_allclose(results, model.predict(x, verbose=0), rtol=0, atol=2e-6)


def test_without_a_linker_for_webassembly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    mlp().export(tmp_path / "m", format="native", verbose=False, target="wasm32")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.README.md", "m.h", "m.o"]
    text = (tmp_path / "m.README.md").read_text()
    assert "no library: wasm-ld and the C library" in text and "m_predict(x, y, 1n, 0)" in text
