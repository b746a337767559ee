"""Recipes of CONTRIBUTING.md, and small changes that follow them.

A recipe is a section with a numbered list of files and a `pytest` command. A patch
`tests/recipes/patches/NAME.patch` names the recipe in its first line; each part after an empty line
names a file and changes it: ` ` stays, `-` is removed, `+` is added. Only `+`: a new file.

A second line `new: WORD ...` may say what the change adds to the registries. Of a parametrized test
only the cases with such a word in their names run then: the others ran before the change.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from mutants import ROOT, Mutant, mutated

PATCHES = ROOT / "tests" / "recipes" / "patches"
_ITEM = re.compile(r"^\d+\. (If [^`]*)?`([^`]+)`", re.MULTILINE)
_COMMAND = re.compile(r"`pytest ([^`]+)`")
_NAME = re.compile(r"<(\w+)>")


class Recipe(NamedTuple):
    """A section of CONTRIBUTING.md.

    Attributes:
        title: its heading.
        files: (path, whether it is touched in any case); `<name>` means a name.
        tests: the arguments of its `pytest` command; `<name>` likewise.
    """

    title: str
    files: tuple[tuple[str, bool], ...]
    tests: tuple[str, ...]

    def names_in(self, touched: set[str]) -> dict[str, str]:
        """Return what each `<name>` of the recipe means in the touched files.

        Raises:
            AssertionError: a file is touched that the recipe does not name, or the other way round.
        """
        names: dict[str, str] = {}
        left = set(touched)
        # Paths without names first: `<file>.py` means the other files.
        for path, always in sorted(self.files, key=lambda item: "<" in item[0]):
            pattern = _pattern(path, names)
            result = sorted(p for p in left if re.fullmatch(pattern, p))
            assert result or not always, f"{self.title}: the change does not touch {path}"
            assert len(result) <= 1, f"{self.title}: {result} are all {path}"
            if result:
                left.remove(result[0])
                names.update(re.fullmatch(pattern, result[0]).groupdict())  # type: ignore[union-attr]
        assert not left, f"{self.title}: the recipe does not name {sorted(left)}"
        return names

    def command(self, names: dict[str, str]) -> list[str]:
        """Return the arguments of pytest, names filled in."""
        return [_NAME.sub(lambda m: names[m[1]], argument) for argument in self.tests]


def _pattern(path: str, names: dict[str, str]) -> str:
    """Return the pattern of a path; a known name means the same again."""
    parts = _NAME.split(path)
    for i in range(1, len(parts), 2):
        parts[i] = names.get(parts[i]) or rf"(?P<{parts[i]}>[a-z]\w*)"
    for i in range(0, len(parts), 2):
        parts[i] = re.escape(parts[i])
    return "".join(parts)


def read_recipes(text: str) -> dict[str, Recipe]:
    """Return the recipes of a page by their titles.

    Example:
        >>> page = "## Recipes\\n### A loss\\n1. `a/<file>.py`: it.\\n`pytest t -q`\\n## Style"
        >>> read_recipes(page)["A loss"].files
        (('a/<file>.py', True),)
    """
    section = re.split(r"^## Recipes.*\n", text, flags=re.MULTILINE)[1]
    section = re.split(r"^## ", section, flags=re.MULTILINE)[0]
    result = {}
    for part in re.split(r"^### ", section, flags=re.MULTILINE)[1:]:
        title = part.partition("\n")[0]
        files = tuple((path, not condition) for condition, path in _ITEM.findall(part))
        commands = _COMMAND.findall(part)
        assert files, f"{title}: no numbered list of files"
        assert len(commands) == 1, f"{title}: {len(commands)} pytest commands, expected one"
        result[title] = Recipe(title, files, tuple(commands[0].split()))
    return result


class Patch(NamedTuple):
    """A change that follows a recipe.

    Attributes:
        name: of the file.
        recipe: the recipe's title.
        new: words in the names of the cases that it adds; all cases run if there are none.
        parts: (file, lines before, lines after); no lines before: a new file.
    """

    name: str
    recipe: str
    new: tuple[str, ...]
    parts: tuple[tuple[str, str, str], ...]

    @property
    def touched(self) -> set[str]:
        """The files that it changes or adds."""
        return {file for file, _, _ in self.parts}

    def files(self, root: Path = ROOT) -> dict[str, str]:
        """Return the texts of the touched files after the change.

        Raises:
            ValueError: it does not fit the files as they are.
        """
        texts: dict[str, str] = {}
        for file, before, after in self.parts:
            if not before:
                if (root / file).exists():
                    raise ValueError(f"{self.name}: {file} is there already.")
                texts[file] = after
                continue
            source = texts.get(file) or (root / file).read_text("utf-8")
            texts[file] = mutated(Mutant(self.name, "", file, (), before, after), source)
        return texts


def read_patch(path: Path) -> Patch:
    """Return the patch of a file."""
    head, *parts = re.split(r"\n\n(?=file: )", path.read_text("utf-8").rstrip("\n"))
    title, _, new = head.removeprefix("recipe: ").partition("\nnew: ")
    if not head.startswith("recipe: ") or not parts or "\n" in title + new:
        raise ValueError(f"{path.name}: expected 'recipe: TITLE', then parts 'file: PATH'.")
    read = []
    for part in parts:
        name, *lines = part.splitlines()
        if not lines or any(line[:1] not in (" ", "-", "+") for line in lines):
            raise ValueError(f"{path.name}: each line of a part begins with ' ', '-' or '+'.")
        before = "".join(f"{line[1:]}\n" for line in lines if line[0] in " -")
        after = "".join(f"{line[1:]}\n" for line in lines if line[0] in " +")
        read.append((name.removeprefix("file: "), before, after))
    return Patch(path.stem, title, tuple(new.split()), tuple(read))


def all_patches() -> list[Patch]:
    """Return all patches by name."""
    return [read_patch(path) for path in sorted(PATCHES.glob("*.patch"))]
