"""Environment variables: a value that is not known is refused, with the variable's name."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kerasish import backends, config, devices
from kerasish.backends.onednn import library as onednn_library
from kerasish.backends.static.machine import machine_code
from kerasish.environment import choice, switch

PROGRAM = "from kerasish import devices; devices.current()"


@pytest.mark.parametrize("value", ["1", "true", "Yes", "on"])
def test_a_switch_is_on(value, monkeypatch):
    monkeypatch.setenv("KERASISH_X", value)
    assert switch("KERASISH_X") is True


@pytest.mark.parametrize("value", ["", "0", "false", "NO", "off"])
def test_a_switch_is_off(value, monkeypatch):
    monkeypatch.setenv("KERASISH_X", value)
    assert switch("KERASISH_X", default=True) is False


def test_a_switch_refuses_other_words(monkeypatch):
    monkeypatch.setenv("KERASISH_X", "maybe")
    with pytest.raises(ValueError, match=r"KERASISH_X='maybe': expected '1' \(on\) or '0'"):
        switch("KERASISH_X")


def test_a_choice_is_one_of_its_words(monkeypatch):
    monkeypatch.delenv("KERASISH_X", raising=False)
    assert choice("KERASISH_X", ("a", "b"), "b") == "b"
    monkeypatch.setenv("KERASISH_X", "a")
    assert choice("KERASISH_X", ("a", "b"), "b") == "a"
    monkeypatch.setenv("KERASISH_X", "c")
    with pytest.raises(ValueError, match=r"KERASISH_X='c': expected one of \['a', 'b'\]"):
        choice("KERASISH_X", ("a", "b"))


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("KERASISH_FLOATX", "'bfloat16'"),
        ("KERASISH_OPTIMIZE", "'fast_compile'"),
        ("KERASISH_TF32", "'1'"),
        ("KERASISH_DEVICE", "'gpu'"),
    ],
)
def test_what_is_read_at_the_start_is_refused(name, known):
    """These are read once in a process, so each needs a process of its own."""
    environment = {**os.environ, name: "bogus"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=60
    )
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and last.startswith("ValueError:")
    assert f"{name}='bogus'" in last and known in last


def test_the_level_of_the_processor(monkeypatch):
    monkeypatch.setenv("KERASISH_CPU", "nope")
    with pytest.raises(ValueError, match="KERASISH_CPU='nope'.*'avx512', 'avx2', 'sse'"):
        machine_code.host_target()
    with pytest.raises(ValueError, match="limit is one of"):
        machine_code.host_target("avx1024")


def test_bfloat16(monkeypatch):
    monkeypatch.setenv("KERASISH_BFLOAT16", "half")
    with pytest.raises(ValueError, match="KERASISH_BFLOAT16='half'.*'float32', 'native'"):
        onednn_library.slow_halves()


def test_debug(monkeypatch):
    monkeypatch.setenv("KERASISH_DEBUG", "false")
    assert not config.is_debugging()
    monkeypatch.setenv("KERASISH_DEBUG", "perhaps")
    with pytest.raises(ValueError, match="KERASISH_DEBUG='perhaps'"):
        config.is_debugging()


def test_the_backend(monkeypatch):
    monkeypatch.setenv("KERASISH_BACKEND", "statik")
    before = config.backend()
    config.set_backend("statik")
    try:
        with pytest.raises(ValueError, match=r"KERASISH_BACKEND='statik'.*'eager', 'static'"):
            backends.choose()
        monkeypatch.delenv("KERASISH_BACKEND")
        with pytest.raises(ValueError, match="Did you mean 'static'"):
            backends.choose()
    finally:
        config.set_backend(before)


def test_the_device_that_is_set_by_name_is_refused_as_before():
    with pytest.raises(ValueError, match="'nope'"):
        devices.parse("nope")
