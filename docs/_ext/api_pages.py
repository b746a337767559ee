"""Writes the API reference: a page for each public module, and one for each public name.

The pages go to docs/api, which git ignores; autodoc fills them. A module's page lists all that it
offers, with the first sentence of each docstring.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from plain_docstrings import known_links, summary
from public_names import Name, exported, modules, public

# Classes that users derive from or hold in their hands: their pages show inherited methods too.
WHOLE = (
    "Callback", "Function", "Functional", "GradientTape", "Initializer", "KerasClassifier",
    "KerasRegressor", "Layer", "Loss", "Metric", "Model", "Optimizer", "PyDataset", "Sequential",
    "Tensor", "Variable",
)  # fmt: skip
# Modules whose page is divided by the file that defines a name.
DIVIDED = ("kerasish.layers", "kerasish.ops", "kerasish.metrics", "kerasish.losses")


def heading(text: str, line: str) -> list[str]:
    """Return a title of reStructuredText."""
    return [text, line * len(text), ""]


def file_of(name: Name) -> str:
    """Return the page's file without its ending; functions never differ from classes by case."""
    stem = name.address.removeprefix("kerasish.")
    return stem if inspect.isclass(name.value) else f"{stem}-function"


def methods_of(name: Name) -> list[str]:
    """Return the public members with a docstring that the page shows."""
    value = name.value
    if not inspect.isclass(value):
        return []
    all_names = dir(value) if name.name in WHOLE else vars(value)
    shown = []
    for member in all_names:
        static = inspect.getattr_static(value, member)
        target = getattr(static, "fget", None) or getattr(static, "__func__", static)
        if member.startswith("_") or not (callable(target) or isinstance(static, property)):
            continue
        if getattr(target, "__doc__", None) and "kerasish" in str(
            getattr(target, "__module__", "kerasish")
        ):
            shown.append(member)
    return sorted(shown)


def page(name: Name) -> str:
    """Return the page of one name."""
    kind = "function"
    if inspect.isclass(name.value):
        kind = "exception" if issubclass(name.value, BaseException) else "class"
    lines = [":orphan:", "", *heading(name.name.split(".")[-1], "=")]
    module = name.module.partition(".")[2] or "kerasish"
    lines += [f"In :doc:`{name.module} <module-{module}>`.", ""]
    lines += [f".. currentmodule:: {name.module}", "", f".. auto{kind}:: {name.address}"]
    if methods := methods_of(name):
        lines += ["   :inherited-members:"] if name.name in WHOLE else []
        lines += [f"   :members: {', '.join(methods)}"]
    elif kind == "class":
        lines += ["   :no-members:"]
    if name.aliases:
        lines += ["", f"Also {', '.join(f'``{alias}``' for alias in name.aliases)}."]
    return "\n".join([*lines, ""])


def family(name: Name) -> str:
    """Return the words over a group of a divided page: the file that defines the name."""
    parts = str(getattr(name.value, "__module__", name.module)).split(".")
    within = parts[len(name.module.split(".")) :] or ["core"]
    last = within[-1] if name.module == "kerasish.ops" else within[0]
    return last.replace("_", " ").capitalize()


def table(rows: list[tuple[str, Name]], links: dict[str, str]) -> Iterator[str]:
    """Yield a table: name with link, first sentence."""
    yield from (".. list-table::", "   :widths: 30 70", "   :class: api-list", "")
    for shown, name in rows:
        yield f"   * - :doc:`{shown} <{file_of(name)}>`"
        yield f"     - {summary(name.value, links)}"
    yield ""


def module_page(module: str, by_value: dict[int, Name], links: dict[str, str]) -> str:
    """Return the page of a module: its docstring, and all its names."""
    full = f"kerasish.{module}".rstrip(".")
    rows = [(shown, by_value[id(value)]) for shown, value in exported(module).items()]
    lines = [*heading(full, "="), f".. module:: {full}", ""]
    lines += [summary(importlib.import_module(full), links), ""]
    if full in DIVIDED:
        key = lambda row: family(row[1])  # noqa: E731 - used twice, here
        for words, group in groupby(sorted(rows, key=key), key):
            lines += [*heading(words, "-"), *table(list(group), links)]
    else:
        lines += table(rows, links)
    return "\n".join(lines)


def write(folder: Path) -> None:
    """Write all pages; a page that has not changed keeps its time, and one of no name goes."""
    names = public()
    by_value = {id(name.value): name for name in names}
    links = known_links()
    pages = {f"{file_of(name)}.rst": page(name) for name in names}
    listed = [module for module in modules() if exported(module)]
    for module in listed:
        pages[f"module-{module or 'kerasish'}.rst"] = module_page(module, by_value, links)
    toctree = [f"   module-{module or 'kerasish'}" for module in listed]
    lines = [
        *heading("API reference", "="),
        "Every public name has a page. The names, arguments and defaults are Keras's; names that",
        "Keras does not have are marked by no page in Keras's own reference.",
        "See :doc:`/keras_coverage` for what is missing.", "",
        ".. toctree::", "   :maxdepth: 1", "", *toctree, "",
    ]  # fmt: skip
    pages["index.rst"] = "\n".join(lines)
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.rst"):
        if old.name not in pages:
            old.unlink()
    for file, text in pages.items():
        path = folder / file
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")


def setup(app: Any) -> dict[str, Any]:
    """Write the pages before Sphinx looks for files."""
    app.connect("config-inited", lambda app, config: write(Path(app.srcdir) / "api"))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
