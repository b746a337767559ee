"""What a complete docstring of a public name has.

Google's sections, as CONTRIBUTING.md asks: every parameter under Args, what None means where it
is the default, what is returned, and an example. Errors and functions without results are asked
for less.

`python docs/_ext/docstring_checks.py` prints what is missing; by tests/docs/test_docstrings.py it
prints nothing.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

from public_names import Name, public, signature_of

from kerasish.ops.op import Op

_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields|Shape|Source|Example|Examples):")
_ENTRY = re.compile(r"^    (\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: \([^)]*\))?:")

# "None: ...", or a reference to where that is said.
_SAYS_NONE = re.compile(r"\bNone\b|as (for|given|in|there)|accepted|see `|default")


def sections(text: str) -> dict[str, list[str]]:
    """Return the lines of each section of a docstring; "" for the text before the first one."""
    result: dict[str, list[str]] = {"": []}
    current = ""
    for line in text.splitlines():
        if match := _SECTION.match(line):
            current = match[1]
            result[current] = [line[match.end() :].strip()]
        elif current and line.strip() and not line.startswith(" "):
            current = ""
            result[""].append(line)
        else:
            result[current].append(line)
    return result


def documented(text: str) -> set[str]:
    """Return the parameters that the section Args names."""
    names: set[str] = set()
    for line in sections(text).get("Args", []):
        if match := _ENTRY.match(line):
            names |= {name.lstrip("*") for name in match[1].split(", ")}
    return names


def entries(text: str) -> dict[str, str]:
    """Return parameter -> what the section Args, and the class that it refers to, say of it."""
    result: dict[str, str] = {}
    names: list[str] = []
    for line in [*sections(text).get("Args", []), *shared(text)]:
        if match := _ENTRY.match(line):
            names = [name.lstrip("*") for name in match[1].split(", ")]
            result |= dict.fromkeys(names, line[match.end() :])
        else:
            result |= {name: f"{result[name]} {line.strip()}" for name in names}
    return result


def shared(text: str) -> list[str]:
    """Return the Args of the class that "options: ...; see `Class`" refers to."""
    match = re.search(r"^    options: .*`(\w+)`\.?$", text, re.M)
    if match is None:
        return []
    value = next((n.value for n in public() if n.name == match[1]), None)
    return sections(inspect.getdoc(value) or "").get("Args", [])[1:]


def parameters(value: Any) -> list[str]:
    """Return what a call takes; `kwargs` of layers, which is described in one place, not."""
    signature = signature_of(value)
    if signature is None:
        return []
    if inspect.isclass(value) and not _constructor_is_ours(value):
        return []  # a class of NumPy's kind is made as NumPy makes it
    return [p.name for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]


def _constructor_is_ours(cls: type) -> bool:
    return any(
        str(getattr(vars(base).get(name), "__module__", "")).startswith("kerasish")
        for base in cls.__mro__
        for name in ("__init__", "__new__")
    )


def problems(name: Name) -> list[str]:
    """Return what the docstring of a public name lacks."""
    value = name.value
    text = inspect.getdoc(value) or ""
    if inspect.isclass(value) and issubclass(value, BaseException):
        return [] if text else ["a description"]
    parts = sections(text)
    known = documented(text) | documented("\n".join(["Args:", *shared(text)]))
    missing = [p for p in parameters(value) if p not in known]
    found = [f"parameter {p}" for p in missing]
    signature = signature_of(value)
    for parameter, said in entries(text).items():
        if not said.strip():
            found.append(f"text for {parameter}")
        elif signature and parameter in signature.parameters and parameter not in missing:
            default = signature.parameters[parameter].default
            if default is None and not _SAYS_NONE.search(said):
                found.append(f"what None means for {parameter}")
    returns = signature.return_annotation if signature else None
    # An op's description is its result, by a formula.
    is_function = not inspect.isclass(value) and not isinstance(value, Op)
    says = re.search(r"(^|[;,] )(and )?([Rr]eturn|[Yy]ield|Make|Set|Print|Raise)s?\b", text)
    says = says or "Returns" in parts
    if is_function and returns not in ("None", None) and not says:
        found.append("what it returns")
    if not {"Example", "Examples"} & parts.keys():
        found.append("an example")
    if not "".join(parts[""]).strip():
        found.append("a description")
    return found


def main() -> None:
    """Print what docstrings lack."""
    lacking = {name.address: found for name in public() if (found := problems(name))}
    for address, found in sorted(lacking.items()):
        print(f"{address}: {', '.join(found)}")
    print(f"{len(lacking)} of {len(public())} names lack something")


if __name__ == "__main__":
    main()
