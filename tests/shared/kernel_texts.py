"""The texts of all sources of kernels, those made of optimizers' formulas included."""

from __future__ import annotations

from kernel_calls import UPDATES

from kerasish.backends.eager.cuda import kernels

EVERY = (*kernels.SOURCES, *UPDATES)


def text_of(source: str) -> str:
    """Return the text of a source, or of what is made of an optimizer's formula."""
    return kernels.source(UPDATES[source]().name if source in UPDATES else source)
