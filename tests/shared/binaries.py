"""The facts of all kernels' binaries, and `python tests/shared/binaries.py`, which writes the page.

The page is docs/gpu_binaries.md; the wheels that `nvrtc.py` names are needed, a GPU is not.
"""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kernel_texts import text_of
from nvrtc import ARCHITECTURES, Facts, compile_text, facts_of

from kerasish.backends.eager.cuda import kernels

SOURCES = (*kernels.SOURCES, "adam_update")
# bfloat16 for every generation, float32 for the oldest, a present and the newest one.
BUILDS = [("17", a) for a in ARCHITECTURES] + [("32", a) for a in ("sm_75", "sm_90", "sm_120")]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "gpu_binaries.md"


@functools.cache
def facts(source: str, scalar: str, architecture: str, index: str = "32") -> dict[str, Facts]:
    """Return the facts of a source's kernels, by name; the test is skipped without the wheels.

    Args:
        index: the bits of positions in arrays.
    """
    options = ("--std=c++17", f"-DSCALAR={scalar}", f"-DINDEX={index}", f"-arch={architecture}",
               "-ftz=true")  # fmt: skip
    binary, log = compile_text(text_of(source), options, 13)
    assert binary, log
    return facts_of(binary)


def table() -> list[str]:
    """Return the page's lines of the table: the smallest and largest numbers over its builds."""
    lines = []
    with ThreadPoolExecutor() as pool:  # the tools are processes of their own
        known = list(pool.map(lambda s: [facts(s, *b) for b in BUILDS], SOURCES))
    for builds in known:
        for name in sorted(builds[0]):
            some = [b[name] for b in builds]
            widest = min(max(f.loads or (0,)) for f in some)
            lines.append(
                f"| `{name}` | {min(f.registers for f in some)} to "
                f"{max(f.registers for f in some)} "
                f"| {max(f.stack for f in some)} | {max(f.shared for f in some)} "
                f"| {widest} | {max(f.divisions for f in some)} |"
            )
    return lines


HEAD = """# Kernel binaries

`python tests/shared/binaries.py` writes this page. It compiles the sources with NVRTC 13 and reads
the binaries with NVIDIA's tools, without a GPU. bfloat16 was compiled for sm_75, 80, 86, 89, 90,
100, 103 and 120, float32 for sm_75, 90 and 120, with 32-bit positions. The numbers are the smallest
and largest over these builds. `tests/backends/cuda/test_binaries.py` checks the limits for each of
them: 64 registers, no local memory (where spilled registers would be), and 16-byte loads in every
kernel that has a vectorized path.

- *Local memory*: bytes per thread. *Shared memory*: maximum bytes per block.
- *Widest load*: bytes, the smallest over the builds. `dropout` and `random_words` work on blocks of
  four numbers, as Philox generates them: 8 bytes of 16-bit numbers.
- *Divisions*: maximum number of 64-bit integer divisions inside loops. The remaining ones are in
  loops over rows or blocks, not over elements.

| kernel | registers | local memory | shared memory | widest load | divisions |
|---|---|---|---|---|---|
"""


def main() -> None:
    """Write the page."""
    PAGE.write_text(HEAD + "\n".join(table()) + "\n", "utf-8")


if __name__ == "__main__":
    main()
