"""Every source compiled by NVRTC, and what the package asks of CuPy."""

from __future__ import annotations

import ast
import functools
import inspect
import pathlib
import re

import pytest
from cuda_on_cpu import (
    SCALARS,
    signatures,
)
from kernel_texts import EVERY
from kernel_texts import text_of as _text
from nvrtc import BY_CUPY, compile_text

import kerasish
from kerasish.backends.eager.cuda import (
    kernels,
)

# --- for GPUs -------------------------------------------------------------------------------------


def test_nvrtc_refuses_what_is_wrong():
    binary, log = compile_text("__global__ void f() { nothing; }", ("-arch=sm_90",))
    assert not binary
    assert "nothing" in log


def _check_compiles(source, scalar, architecture, major=0, more=()):
    options = ("--std=c++17", f"-DSCALAR={scalar}", "-DINDEX=32", f"-arch={architecture}", *more)
    binary, log = compile_text(_text(source), options, major)
    assert binary, log
    assert not log, log  # no warning either
    for name in signatures(_text(source)):
        assert name.encode() in binary


@pytest.mark.parametrize("source", EVERY)
def test_every_source_compiles_for_the_oldest_gpu(source):
    _check_compiles(source, "17", "sm_75")


@pytest.mark.slow
@pytest.mark.parametrize("source", EVERY)
def test_every_source_compiles_with_cuda_12(source):
    """NVRTC 12.9 and 13 differ in what they take without options: bare, and with CuPy's."""
    builds = [("17", "sm_75", ()), ("32", "sm_90", BY_CUPY), ("16", "sm_120", ())]
    for scalar, architecture, more in builds if source in kernels.SOURCES else builds[:1]:
        _check_compiles(source, scalar, architecture, 12, more)


@pytest.mark.slow
@pytest.mark.parametrize("source", [*kernels.SOURCES, "adam_update"])
@pytest.mark.parametrize("scalar", sorted(SCALARS))
def test_every_source_compiles_with_cuda_13(source, scalar):
    """test_binaries.py compiles them for each generation of GPUs."""
    for architecture in ("sm_90", "sm_120"):
        _check_compiles(source, scalar, architecture, 13)
    _check_compiles(source, scalar, "sm_90", 13, BY_CUPY)


PACKAGE = pathlib.Path(kerasish.__file__).parent
SCRIPTS = sorted(p for p in PACKAGE.rglob("*.py") if re.search(r"\bxp\.|\bcupy\b", p.read_text()))


def _names(node):
    """Return ["linalg", "svd"] for xp.linalg.svd, cupy.linalg.svd, cupy().linalg.svd; else []."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    node = node.func if isinstance(node, ast.Call) and not node.args else node
    known = isinstance(node, ast.Name) and node.id in ("xp", "cupy")
    return names[::-1] if known or (names[-1:] == ["xp"] and names.pop()) else []


def _lacking(cupy, text):
    """Yield what a script asks of CuPy that it lacks: names, and arguments of functions by name."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and _names(node):
            found = cupy
            for name in _names(node):
                if not hasattr(found, name):
                    yield f"{'.'.join(_names(node))}, line {node.lineno}"
                    break
                found = getattr(found, name)
        if isinstance(node, ast.Call) and _names(node.func):
            found = functools.reduce(lambda f, n: getattr(f, n, None), _names(node.func), cupy)
            takes = _parameters(cupy, found)
            for word in node.keywords:
                if takes is not None and word.arg is not None and word.arg not in takes:
                    yield f"{'.'.join(_names(node.func))}({word.arg}=), line {node.lineno}"


def _parameters(cupy, function):
    """Return the names of a function's parameters; None where they cannot be known."""
    if isinstance(function, cupy.ufunc):
        return {"out", "dtype", "casting"}
    try:
        found = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None
    open_ended = any(p.kind is p.VAR_KEYWORD for p in found.values())
    return None if open_ended else set(found)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_cupy_has_what_is_asked_of_it(path):
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed: extras gpu13 or gpu12")
    assert not list(_lacking(cupy, path.read_text()))


def test_what_cupy_lacks_is_found():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed: extras gpu13 or gpu12")
    text = "xp.nothing\ncupy().linalg.none(x)\nxp.max(x, initial=0)\nxp.add(x, y, out=z)\nxp.sum(x)"
    found = ["nothing, line 1", "linalg.none, line 2", "max(initial=), line 3"]
    assert sorted(_lacking(cupy, text)) == sorted(found)
