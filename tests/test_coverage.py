"""The page of Keras's names tells the truth, and nothing is left out without a reason."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from kerasish import layers

_SCRIPT = Path(__file__).parent.parent / "docs" / "coverage.py"
_SPEC = importlib.util.spec_from_file_location("coverage_page", _SCRIPT)
coverage = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(coverage)


def test_the_page_is_up_to_date():
    assert coverage.PAGE.read_text("utf-8") == coverage.page(), "run: python docs/coverage.py"


@pytest.mark.parametrize("module", sorted(coverage.names()))
def test_names_left_out_have_a_reason(module):
    there, out = coverage.names()[module]
    assert there or out
    assert not [name for name, why in out.items() if not why]


def test_methods_left_out_have_a_reason():
    unexplained = {m: whys[""] for m, whys in coverage.missing_methods().items() if "" in whys}
    assert not unexplained


MODULES = ("quantizers", "distillation")


def test_nothing_is_said_to_be_left_out_that_is_there():
    keras = coverage.read("keras_signatures")
    for module, names in coverage.UNSUPPORTED.items():
        for name in names:
            known = keras.get(module or "keras", {})
            assert name in known or name in MODULES
    missing = coverage.missing_methods()
    assert set(missing) >= set(coverage.METHODS)


def test_methods_are_seen():
    names = ("units", "kernel", "build", "trainable", "nothing")
    assert [coverage.has_method(layers.Dense, n) for n in names] == [True] * 4 + [False]


def test_the_page_counts():
    there, total = re.search(r"\*\*(\d+) of (\d+) public", coverage.page()).groups()
    assert int(there) > 1200 and int(total) == sum(
        map(len, coverage.read("keras_signatures").values())
    )
