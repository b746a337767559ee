"""Mutants: small wrong changes of the package, kept as texts, that the tests have to notice.

A file `patches/AREA/NAME.patch` says in its head what is wrong, which file is changed, and which
test files should see it. The lines after an empty one are the change: ` ` stays, `-` goes, `+`
comes. There are no line numbers: the lines before the change must occur in the file exactly once.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PATCHES = ROOT / "tests" / "mutants" / "patches"


class Mutant(NamedTuple):
    """One wrong change.

    Attributes:
        name: "area/name".
        what: what is wrong, in a line.
        file: the changed file, relative to the checkout.
        tests: the test files that should see it.
        before, after: the text that is replaced, and what replaces it.
    """

    name: str
    what: str
    file: str
    tests: tuple[str, ...]
    before: str
    after: str

    @property
    def area(self) -> str:
        """The part of the package that it belongs to."""
        return self.name.partition("/")[0]


class NotApplicable(ValueError):
    """The lines before the change are not in the file, or more than once."""


def read_mutant(text: str, name: str) -> Mutant:
    """Return the mutant that a patch file describes.

    Example:
        >>> text = "what: w\\nfile: f.py\\ntests: t.py\\n\\n x = 1\\n-y = 2\\n+y = 3\\n"
        >>> mutant = read_mutant(text, "area/name")
        >>> mutant.before, mutant.after
        ('x = 1\\ny = 2\\n', 'x = 1\\ny = 3\\n')
    """
    head, _, hunk = text.partition("\n\n")
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    if set(fields) != {"what", "file", "tests"}:
        raise ValueError(f"{name}: expected the lines what, file and tests, got {sorted(fields)}.")
    lines = hunk.rstrip("\n").splitlines()
    if not lines or any(line[:1] not in (" ", "-", "+") for line in lines):
        raise ValueError(f"{name}: each line of the change begins with ' ', '-' or '+'.")
    before = "".join(f"{line[1:]}\n" for line in lines if line[0] in " -")
    after = "".join(f"{line[1:]}\n" for line in lines if line[0] in " +")
    return Mutant(
        name, fields["what"], fields["file"], tuple(fields["tests"].split()), before, after
    )


def all_mutants(folder: Path = PATCHES) -> list[Mutant]:
    """Return the mutants of all patch files, by name."""
    found = []
    for path in sorted(folder.glob("*/*.patch")):
        name = f"{path.parent.name}/{path.stem}"
        found.append(read_mutant(path.read_text("utf-8"), name))
    return found


def mutated(mutant: Mutant, source: str) -> str:
    """Return the changed text of a file.

    Raises:
        NotApplicable: the lines before the change do not occur exactly once.
    """
    lines, before = "\n" + source, "\n" + mutant.before
    count = sum(lines.startswith(before, i) for i, c in enumerate(lines) if c == "\n")
    if count != 1:
        raise NotApplicable(
            f"{mutant.name}: the lines before the change occur {count} times in {mutant.file}; "
            "write them as they are there now, with enough lines around them to be unique."
        )
    return lines.replace(before, "\n" + mutant.after)[1:]


def check(mutant: Mutant, root: Path = ROOT) -> None:
    """See that a mutant applies, changes the program and compiles, and that its tests exist.

    Raises:
        ValueError: one of these is not so.
    """
    source = (root / mutant.file).read_text("utf-8")
    read = program if mutant.file.endswith(".py") else cuda_program
    if read(mutated(mutant, source)) == read(source):
        raise ValueError(f"{mutant.name}: the program stays the same.")
    missing = [name for name in mutant.tests if not (root / name).is_file()]
    if missing or not mutant.tests:
        raise ValueError(f"{mutant.name}: no such test file: {missing}.")


@functools.lru_cache(maxsize=4)
def program(source: str) -> Any:
    """Return what Python makes of a source, without the numbers of its lines."""
    return _parts(compile(source, "source", "exec", dont_inherit=True))


def cuda_program(source: str) -> list[str]:
    """Return the words of a CUDA source, without its comments."""
    return re.sub(r"//.*|/\*.*?\*/", "", source).split()


def _parts(code: CodeType) -> Any:
    constants = [_parts(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return code.co_code, code.co_names, code.co_varnames, constants
