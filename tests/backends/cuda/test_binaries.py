"""The limits of the kernels' binaries: registers, local memory, the width of loads, divisions."""

from __future__ import annotations

import binaries
import pytest
from cuda_on_cpu import signatures
from kernel_texts import text_of
from nvrtc import compile_text, facts_of

# Kernels that take `packed`, and what their widest load must be for 16-bit numbers.
FOUR_NUMBERS = {"dropout": 8, "random_words": 4}  # Philox makes four at a time
# Loops over elements: nothing in them divides 64-bit numbers.
NO_DIVISIONS = {
    "bias_activation", "bias_activation_gradient", "windows_to_rows", "rows_to_places",
    "depthwise", "depthwise_data", "depthwise_kernel_parts", "pool_largest",
    "pool_largest_gradient", "pool_pick", "pool_mean", "pool_mean_gradient", "column_parts",
    "column_totals", "moment_parts", "moment_totals", "batch_totals", "scale_shift",
    "batch_gradient", "places_along_int", "places_along_long", "sort_chunks", "sort_merge",
    "sort_chunks_int", "heads_first", "steps_first",
    "lstm_step", "lstm_sequence", "gru_step", "simple_step", "adam_update", "dropout",
}  # fmt: skip


def _takes_packs(source: str, kernel: str) -> bool:
    text = text_of(source)
    at = text.index(f" {kernel}(")
    return "packed" in text[at : text.index("{", at)]


def _check_limits(source, *build):
    """Check what is true of all builds; return the facts of each kernel."""
    found = binaries.facts(source, *build)
    assert set(found) == set(signatures(text_of(source)))
    for name, facts in found.items():
        where = f"{name}, {build}: {facts}"
        assert facts.registers <= 64, where
        assert facts.stack == 0, where
        assert facts.shared <= 48 << 10, where
        if _takes_packs(source, name):
            least = FOUR_NUMBERS.get(name, 16) if build[0] != "32" else 16
            assert max(facts.loads + facts.stores) >= least, where
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("scalar", "architecture"), binaries.BUILDS)
def test_no_kernel_exceeds_the_limits(scalar, architecture):
    for source in binaries.SOURCES:
        for name, facts in _check_limits(source, scalar, architecture).items():
            assert name not in NO_DIVISIONS or facts.divisions == 0, (name, facts)


@pytest.mark.slow
@pytest.mark.parametrize(("scalar", "architecture"), [("17", "sm_75"), ("32", "sm_90")])
def test_positions_of_64_bits_keep_to_the_limits_too(scalar, architecture):
    for source in binaries.SOURCES:
        _check_limits(source, scalar, architecture, "64")


def test_the_page_names_every_kernel():
    page = binaries.PAGE.read_text("utf-8")
    named = {n for s in binaries.SOURCES for n in signatures(text_of(s))}
    assert {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")} == named


def test_spills_wide_loads_and_divisions_are_seen():
    """The reader itself, on kernels that do what ours may not."""
    text = """
typedef long long i64;
extern "C" __global__ void spills(float* y, int n) {
    float kept[64];
    for (int i = 0; i < 64; ++i) kept[i] = y[i];
    for (int i = 0; i < n; ++i) kept[(int)kept[i % 64] & 63] += 1.0f;
    for (int i = 0; i < 64; ++i) y[i] = kept[i];
}
extern "C" __global__ void wide(const int4* x, int4* y) { y[threadIdx.x] = x[threadIdx.x]; }
extern "C" __global__ void divides(i64* y, i64 n, i64 by) {
    for (i64 i = threadIdx.x; i < n; i += blockDim.x) y[i] = y[i] / by;
}
extern "C" __global__ void divides_once(i64* y, i64 n, i64 by) { y[threadIdx.x] = n / by; }
"""
    binary, log = compile_text(text, ("-arch=sm_90",))
    assert binary, log
    found = facts_of(binary)
    assert found["spills"].stack >= 256
    assert (found["wide"].loads, found["wide"].stores, found["wide"].stack) == ((16,), (16,), 0)
    assert found["divides"].divisions >= 1
    assert found["divides_once"].divisions == 0
