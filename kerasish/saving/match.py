"""Weights from a file put into a model: all are compared first, then assigned or none is."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from kerasish.engine.layer.interface import LayerLike, Saved
from kerasish.engine.layer.layer import Layer
from kerasish.errors import levels_to_user
from kerasish.optimizers.division import DividedSlot
from kerasish.optimizers.optimizer import Optimizer
from kerasish.saving.files.source import Entry, Groups, PartArrays, as_dtype
from kerasish.saving.paths import SEEDS, PartPath, seed_places
from kerasish.tensor import Variable, wrap
from kerasish.typing import Array

_LONGEST_TABLE = 60


class Misfit(NamedTuple):
    """One line of the table of what does not fit."""

    what: str  # missing, extra, shape, dtype, moved
    where: str
    model: str
    file: str


class LoadPlan:
    """What to assign, and what does not fit."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.pairs: list[tuple[Any, Entry]] = []
        self.custom: list[tuple[Any, PartArrays]] = []
        self.misfits: list[Misfit] = []
        self.notes: list[str] = []

    def pair(self, variable: Variable, entry: Entry, where: str) -> None:
        """Plan to put an array into a variable, unless its shape or dtype forbids it."""
        if entry.shape != tuple(variable.shape):
            self.misfits.append(
                Misfit("shape", where, str(tuple(variable.shape)), str(entry.shape))
            )
        elif entry.dtype.startswith("complex") > variable.dtype.startswith("complex"):
            self.misfits.append(Misfit("dtype", where, variable.dtype, entry.dtype))
        else:
            self.pairs.append((variable, entry))

    def pair_each(self, own: Sequence[tuple[Any, str]], entries: Mapping[str, Entry]) -> None:
        """Plan to put arrays into a part's variables, by number.

        Args:
            own: the variables, and what messages call them.
            entries: number -> the array.
        """
        rest = dict(entries)
        for i, (variable, where) in enumerate(own):
            entry = rest.pop(str(i), None)
            if entry is None:
                self.misfits.append(Misfit("missing", where, str(tuple(variable.shape)), "-"))
            else:
                self.pair(variable, entry, where)
        self.extra(rest.values())

    def extra(self, entries: Iterable[Entry]) -> None:
        """Note arrays that the model has no place for."""
        self.misfits.extend(Misfit("extra", e.where, "-", str(e.shape)) for e in entries)

    def run(self, skip_mismatch: bool = False) -> None:
        """Assign, unless something does not fit; on any error the model stays as it was."""
        if self.misfits:
            text = f"{self.where}: the weights do not fit the model.\n{table(self.misfits)}"
            if not skip_mismatch:
                raise ValueError(f"{text}\nNothing was loaded. skip_mismatch=True loads what fits.")
            warnings.warn(f"{text}\nThese were skipped.", stacklevel=levels_to_user())
        for note in self.notes:
            warnings.warn(note, stacklevel=levels_to_user())
        # What cannot be computed again is kept until the end, so its new value is read beforehand.
        recipes = [_own(variable).recipe() for variable, _ in self.pairs]
        arrays = [
            self._read(entry, variable.dtype) if recipe is None else None
            for (variable, entry), recipe in zip(self.pairs, recipes)
        ]
        custom = [_own(v) for owner, _ in self.custom for v in variables_of(owner)]
        undo = [(v, v.recipe() or partial(_same, v.numpy().copy())) for v in custom]
        try:
            for owner, group in self.custom:
                self._load_custom(owner, group, skip_mismatch)
            for i, (variable, entry) in enumerate(self.pairs):
                array, arrays[i] = arrays[i], None
                own, recipe = _own(variable), recipes[i]
                if array is None:  # the first values are gone as soon as they are replaced
                    array = self._read(entry, variable.dtype)
                undo.append((own, recipe or partial(_same, own.numpy())))
                variable.assign(wrap(array))  # as a tensor: no copy
                del array
        except BaseException:
            for variable, value in reversed(undo):
                variable.assign(value())
            raise

    def _read(self, entry: Entry, dtype: str) -> Array:
        try:
            return as_dtype(entry.read(), dtype)
        except ValueError as error:
            if self.where in str(error):
                raise
            raise ValueError(f"{self.where}: the array {entry.where!r} {error}") from error

    def _load_custom(self, owner: Saved, group: PartArrays, skip_mismatch: bool) -> None:
        try:
            owner.load_own_variables(group)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            text = f"{self.where}: {_named(owner)} could not load its variables: {error!r}"
            if not skip_mismatch:
                raise ValueError(text) from error
            warnings.warn(f"{text}; skipped", stacklevel=levels_to_user())


def _own(variable: Any) -> Any:
    """Return what this process holds of a variable: a part, where ranks divide it."""
    return variable.variable if isinstance(variable, DividedSlot) else variable


def _same(value: Any) -> Any:
    """Return the value: where it is kept instead of computed again."""
    return value


def table(misfits: list[Misfit]) -> str:
    """Return misfits as lines of text."""
    head = Misfit("", "where", "in the model", "in the file")
    rows = [head, *misfits[:_LONGEST_TABLE]]
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines = [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
        for row in rows
    ]
    if len(misfits) > _LONGEST_TABLE:
        lines.append(f"  ... and {len(misfits) - _LONGEST_TABLE} more")
    return "\n".join(lines)


def _named(owner: Saved) -> str:
    return f'{type(owner).__name__} "{owner.name}"'


def is_plain(owner: Saved) -> bool:
    """Return whether a part loads its variables the usual way: by number, with equal shapes."""
    own = type(owner).load_own_variables
    if own in (Layer.load_own_variables, Optimizer.load_own_variables):
        return True
    special = getattr(own, "special_where", None)
    return special is not None and not getattr(owner, special)


def variables_of(owner: LayerLike | Optimizer) -> list[Any]:
    """Return the variables that a part holds itself, in the order of files."""
    if isinstance(owner, Optimizer):
        return owner.undivided_variables
    return owner.stored_variables()


def match(parts: list[PartPath], groups: Groups, where: str, by: str | None = None) -> LoadPlan:
    """Return what a file's groups give to a model's parts.

    Args:
        parts: the model's parts.
        groups: the file's groups by path.
        where: the file's name for messages.
        by: None: by path, names in another order are a misfit; "position": by path; "name": by
            the layers' names.
    """
    plan = LoadPlan(where)
    find = _finder(parts, groups, by)
    used: set[str] = set()
    if by is None:
        plan.misfits.extend(_moved(parts, groups, find))
    for place in parts:
        path = find(place)
        group = groups.get(path) if path is not None else None
        if path is not None:
            used.add(path)
        if isinstance(place.owner, Optimizer):
            _match_optimizer(plan, place, group)
        elif is_plain(place.owner):
            _match_plain(plan, place, group)
        elif group is not None:
            plan.custom.append((place.owner, group))
        elif variables_of(place.owner):
            _match_plain(plan, place, group)
    if by != "name":
        match_seeds(plan, parts, groups)
    for path, group in groups.items():
        if path in used or path.startswith("optimizer/") or path.split("/")[-1] == SEEDS:
            continue
        plan.extra(group.entries.values())
    return plan


def match_seeds(plan: LoadPlan, parts: list[PartPath], groups: Groups) -> None:
    """Plan to restore random states; files of Keras hold none."""
    for path, states in seed_places(parts):
        entries = groups[path].entries if path in groups else {}
        results = [entries.get(str(i)) for i in range(len(states))]
        if not entries:
            continue
        for entry in results:
            if entry is None or len(entries) != len(states) or entry.shape != (2,):
                plan.notes.append(f"{plan.where}: the random states at {path!r} do not fit.")
                break
        else:
            plan.pairs.extend((s, e) for s, e in zip(states, results) if e is not None)


def _finder(
    parts: list[PartPath], groups: Groups, by: str | None
) -> Callable[[PartPath], str | None]:
    if by == "name":
        named: dict[str, str] = {}
        for path, group in groups.items():
            if group.name is not None:
                named.setdefault(group.name, path)
        top = {id(p.owner): p for p in parts if p.path.count("/") == 1}

        def by_name(place: PartPath) -> str | None:
            head, _, rest = place.path.partition("/")
            first, _, rest = rest.partition("/")
            parent = next((p for p in top.values() if p.path == f"{head}/{first}"), None)
            if parent is None:
                return place.group if place.group in groups else None
            result = named.get(parent.owner.name)
            if result is None:
                return None
            return result[: -len("vars")] + (f"{rest}/vars" if rest else "vars")

        return by_name
    if by not in (None, "position"):
        raise ValueError(f'by must be None, "position" or "name", got {by!r}.')

    def by_path(place: PartPath) -> str | None:
        if place.group in groups:
            return place.group
        # Keras 2.13 called the list of layers so.
        old = "/".join(
            "_layer_checkpoint_dependencies" if part == "layers" else part
            for part in place.group.split("/")
        )
        return old if old in groups else place.group

    return by_path


def _moved(
    parts: list[PartPath], groups: Groups, find: Callable[[PartPath], str | None]
) -> list[Misfit]:
    """Return the layers whose names are in another order in the file."""
    families: dict[str, list[tuple[str, str, str]]] = {}
    for place in parts:
        path = find(place)
        group = groups.get(path) if path else None
        own = str(place.owner.name)
        if group is None or group.name is None or not place.path.count("/"):
            continue
        parent = place.path.rsplit("/", 1)[0]
        families.setdefault(parent, []).append((place.path, own, group.name))
    results = []
    for rows in families.values():
        names = [own for _, own, _ in rows]
        if sorted(names) != sorted(other for _, _, other in rows):
            continue
        results.extend(
            Misfit("moved", path, own, other) for path, own, other in rows if own != other
        )
    return results


def _match_plain(plan: LoadPlan, place: PartPath, group: PartArrays | None) -> None:
    own = enumerate(variables_of(place.owner))
    named = [(v, f"{place.group}/{i} ({v.path})") for i, v in own]
    plan.pair_each(named, {} if group is None else group.entries)


def _match_optimizer(plan: LoadPlan, place: PartPath, group: PartArrays | None) -> None:
    optimizer = place.owner
    if not isinstance(optimizer, Optimizer) or group is None or not group.entries:
        return  # weights only: the optimizer stays as it is
    own = optimizer.undivided_variables
    if len(own) != len(group.entries):
        plan.notes.append(
            f"{plan.where}: holds {len(group.entries)} variables of the optimizer, "
            f"{_named(optimizer)} has {len(own)}"
            + ("" if optimizer.built else " (it is not built yet)")
            + "; it stays as it is."
        )
    elif is_plain(optimizer):
        _match_plain(plan, place, group)
    else:
        plan.custom.append((optimizer, group))
