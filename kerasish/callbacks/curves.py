"""Plots of the logs over epochs, with Matplotlib."""

from __future__ import annotations

from typing import Any

from kerasish.callbacks.progress import in_notebook
from kerasish.errors import UnknownNameError
from kerasish.typing import PathLike


def plot_curves(
    history: dict[str, list[Any]],
    names: str | None = None,
    path: PathLike | None = None,
    show: bool | None = None,
) -> Any:
    """Return a figure with one plot per log, together with its val_ log; see `History.plot`."""
    own = [name for name in history if not name.startswith("val_") or name[4:] not in history]
    if not own:
        raise ValueError("History.plot: there is no epoch yet; call it after fit().")
    chosen = own if names is None else [names] if isinstance(names, str) else list(names)
    for name in chosen:
        if name not in history:
            raise UnknownNameError.of("log", name, history)
    try:
        from matplotlib import pyplot
        from matplotlib.ticker import MaxNLocator
    except ImportError as error:
        raise ImportError("History.plot needs Matplotlib: pip install 'kerasish[plot]'") from error
    columns = min(len(chosen), 3)
    rows = -(-len(chosen) // columns)
    figure, axes = pyplot.subplots(
        rows, columns, figsize=(5 * columns, 3.5 * rows), squeeze=False, layout="constrained"
    )
    for place, name in zip(axes.ravel(), chosen):
        for log, label in ((name, "training"), (f"val_{name}", "validation")):
            if log in history:
                epochs = range(1, len(history[log]) + 1)
                dot = "o" if len(epochs) == 1 else None
                place.plot(epochs, history[log], label=label, marker=dot)
        place.set(xlabel="epoch", ylabel=name)
        place.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        place.legend()
    for place in axes.ravel()[len(chosen) :]:
        place.set_axis_off()
    if path is not None:
        figure.savefig(path)
    if show or (show is None and path is None):
        pyplot.show()
        if in_notebook():
            _shown_once(figure)
    return figure


def _shown_once(figure: Any) -> None:
    """Let a notebook that shows a cell's result leave out a figure that this cell has shown."""
    from IPython import get_ipython
    from IPython.display import display

    shell = get_ipython()
    cell = shell.execution_count

    def show_later() -> None:
        if shell.execution_count != cell:
            del figure._ipython_display_
            display(figure)

    figure._ipython_display_ = show_later
