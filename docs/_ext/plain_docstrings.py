"""Docstrings of kerasish as Sphinx reads them.

They are plain text with Google's sections: a star is a product and a bar an absolute value, and
single backticks mark code. This extension escapes what reStructuredText would read as markup, links
the names that have a page, and adds the types of parameters from the annotations.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

from docstring_checks import documented, shared
from public_names import public, signature_of

from kerasish import Layer

_CODE = re.compile(r"(``.+?``|`[^`]+`)")
_NAMED = re.compile(r"^(\s*)(\*{0,2}[A-Za-z_]\w*(?:, \*{0,2}[A-Za-z_]\w*)*):(\s.*)$")
_PARAM = re.compile(r"^:(param|ivar) ([^:]+):(.*)$")
_VALUES, _COLON = ("attribute", "property", "data"), "\ue000"  # a character for private use
_SECTION = re.compile(r"^(Attributes|Shape|Returns|Raises|Source|Example):")
_INLINE = re.compile(r"^(Shape|Source|Args): (?=\S)")


def escape(text: str) -> str:
    """Return text that reads the same as reStructuredText."""
    text = text.replace("\\", r"\\").replace("*", r"\*").replace("|", r"\|")
    return re.sub(r"(?<=\w)_(?!\w)", r"\_", text)


def joined_code(lines: list[str]) -> Iterator[str]:
    """Yield the lines, with code that is broken over two lines on one."""
    waiting = ""
    for line in lines:
        line = f"{waiting} {line.strip()}" if waiting and line.strip() else line
        waiting = ""
        if line.count("`") % 2 and ">>>" not in line:
            waiting = line
        else:
            yield line
    if waiting:
        yield waiting


def to_rst(lines: list[str], links: dict[str, str]) -> Iterator[str]:
    """Yield the lines of a docstring with its text escaped and its examples as they are."""
    in_example = False
    for line in joined_code(lines):
        if line.lstrip().startswith(">>>"):
            in_example = True
        elif not line.strip():
            in_example = False
        if in_example:
            yield line
            continue
        if match := _INLINE.match(line):
            yield f"**{match[1]}:** {_escaped(line[match.end() :], links)}"
        elif match := _NAMED.match(line):
            yield f"{match[1]}{match[2]}:{_escaped(match[3], links)}"
        else:
            yield _escaped(line, links)


def _escaped(line: str, links: dict[str, str]) -> str:
    text = ""
    for i, part in enumerate(_CODE.split(line)):
        if not i % 2:
            # Code ends and begins at a space or punctuation; elsewhere an escaped space parts them.
            text += (r"\ " if i and part[:1].isalnum() else "") + escape(part)
            continue
        text += (r"\ " if text[-1:].isalnum() else "") + _code(part.strip("`"), links)
    return text


def _code(text: str, links: dict[str, str]) -> str:
    address = links.get(text.removeprefix("kerasish.").removeprefix("keras."))
    return f":py:obj:`{text} <{address}>`" if address else f"``{text}``"


def known_links() -> dict[str, str]:
    """Return what docstrings call a public name -> its address; no name that means two things."""
    links: dict[str, str] = {}
    twice = set()
    for name in public():
        for address in (name.address, *name.aliases):
            links[address.removeprefix("kerasish.")] = name.address
        if name.name[:1].isupper():  # classes; functions of many modules share their names
            twice |= {name.name} & links.keys() - {name.address.removeprefix("kerasish.")}
            links.setdefault(name.name, name.address)
    return {text: address for text, address in links.items() if text not in twice}


def _readable(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return "" if text in ("Any", "_empty") else text


def with_types(lines: list[str], value: Any) -> Iterator[str]:
    """Yield the field lines, one parameter each, with the type that its annotation names."""
    signature = signature_of(value)
    parameters = signature.parameters if signature else {}
    for line in lines:
        match = _PARAM.match(line)
        if not match:
            yield line
            continue
        for name in match[2].split(", "):
            plain = name.replace("\\", "").lstrip("*")
            type_ = _readable(parameters[plain].annotation) if plain in parameters else ""
            if type_ and match[1] == "param":
                yield f":type {name}: ``{type_}``"
            yield f":{match[1]} {name}:{match[3]}"


def with_shared(lines: list[str], value: Any) -> list[str]:
    """Return a class's docstring with the parameters that it takes from others under its Args."""
    signature = signature_of(value)
    taken = signature.parameters if signature else {}
    known = documented("\n".join(lines))
    more: list[str] = []
    wanted = False
    for line in shared("\n".join(lines)):
        match = _NAMED.match(line)
        if match and len(match[1]) == 4:
            wanted = match[2] in taken and match[2] not in known
        if wanted:
            more.append(line)
    if issubclass(value, Layer) and "kwargs" in taken and "kwargs" not in known:
        names = "`name`, `dtype`, `trainable`, `autocast` and `activity_regularizer`"
        more.append(f"    **kwargs: what every layer takes: {names}; see `Layer`.")
    if not more:
        return lines
    if "Args:" not in lines:
        at = next((i for i, line in enumerate(lines) if _SECTION.match(line)), len(lines))
        return [*lines[:at], "Args:", *more, "", *lines[at:]]
    end = lines.index("Args:") + 1
    while end < len(lines) and lines[end].startswith("    "):
        end += 1
    kept = [line for line in lines[:end] if not (more and line.startswith("    options: "))]
    return [*kept, *more, *lines[end:]]


class Hooks:
    """The two passes over a docstring, before and after napoleon makes fields of its sections."""

    def __init__(self) -> None:
        self.links: dict[str, str] = {}

    def before(self, app: Any, what: str, name: str, obj: Any, options: Any, lines: Any) -> None:
        """Escape the text and link the names."""
        if not self.links:
            self.links = known_links()
        if inspect.isclass(obj):
            lines[:] = with_shared(lines, obj)
        lines[:] = to_rst(lines, self.links)
        if what in _VALUES and lines:  # napoleon would take words before a colon for a type
            lines[0] = lines[0].replace(":", _COLON)

    def after(self, app: Any, what: str, name: str, obj: Any, options: Any, lines: Any) -> None:
        """Add types to the fields."""
        lines[:] = [line.replace(_COLON, ":") for line in lines]
        if callable(obj) and what in ("class", "function", "method", "exception"):
            lines[:] = with_types(lines, obj)
            signature = signature_of(obj)
            returns = _readable(signature.return_annotation) if signature else ""
            if what in ("function", "method") and returns not in ("", "None"):
                if lines and lines[-1].strip():
                    lines.append("")
                lines += [f":rtype: ``{returns}``", ""]


def setup(app: Any) -> dict[str, Any]:
    """Connect the passes around napoleon's, whose priority is 500."""
    hooks = Hooks()
    app.connect("autodoc-process-docstring", hooks.before, priority=400)
    app.connect("autodoc-process-docstring", hooks.after, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def summary(value: Any, links: dict[str, str]) -> str:
    """Return the first sentence of a docstring, as one line of reStructuredText."""
    text = inspect.getdoc(value) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    first = re.split(r"(?<=[a-z0-9)`\]])\.\s(?=[A-Z])", paragraph)[0]
    return _escaped(first if first.endswith(".") else f"{first}.", links)
