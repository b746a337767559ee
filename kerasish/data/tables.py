"""Rows of tables: Parquet and CSV files read a part at a time, and tables in memory."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kerasish.data.elements import cut, join, row_of, spec_of
from kerasish.data.node import END, UNKNOWN_CARDINALITY, Cursor, DataNode
from kerasish.data.sources import RowsNode, slices, unbatched_specs
from kerasish.engine.data.tables import arrow_to_numpy, column_names, columns_of, is_table
from kerasish.typing import Array, PathLike

_ROWS = 8192  # rows of a file that are read at once


class Chosen:
    """Which columns are x and which are y.

    Args:
        columns: the names to read; None: all.
        label: the name(s) of y; None: there is no y.
    """

    def __init__(self, columns: Sequence[str] | None, label: str | Sequence[str] | None) -> None:
        self.columns = None if columns is None else list(columns)
        self.single = isinstance(label, str)
        self.labels = [label] if isinstance(label, str) else list(label or ())

    def names(self, known: Sequence[str], where: str) -> list[str]:
        """Return the names of all columns to read.

        Raises:
            ValueError: there is no such column.
        """
        names = list(known) if self.columns is None else self.columns
        names = names + [name for name in self.labels if name not in names]
        missing = [name for name in names if name not in known]
        if missing:
            raise ValueError(
                f"{where}: there is no column {missing[0]!r}; the columns are {list(known)}."
            )
        return names

    def element(self, columns: dict[str, Any]) -> Any:
        """Return x, or (x, y), of name -> column."""
        if not self.labels:
            return columns
        x = {name: column for name, column in columns.items() if name not in self.labels}
        y = {name: columns[name] for name in self.labels}
        return x, y[self.labels[0]] if self.single else y


def frame_node(
    table: Any, columns: Sequence[str] | None, label: str | Sequence[str] | None
) -> RowsNode:
    """Return the rows of a table in memory; see `Dataset.from_table`."""
    if not is_table(table):
        raise TypeError(
            "from_table: expected a data frame, a LazyFrame, a pyarrow.Table or a "
            f"datasets.Dataset, got {type(table).__name__}."
        )
    chosen = Chosen(columns, label)
    names = chosen.names(column_names(table), "from_table")
    return slices(chosen.element(columns_of(table, names)))


class FileRowsNode(DataNode):
    """Rows of files that are read from their beginning, in parts.

    Args:
        paths: the files.
        chosen: which columns are x and which are y.
    """

    def __init__(self, paths: list[str], chosen: Chosen) -> None:
        self.paths, self.chosen = paths, chosen

    def rows(self, path: str) -> int | None:
        """Return the number of rows of a file where it is known without reading it."""
        return None

    def parts(self, path: str, skip: int) -> Iterator[Any]:
        """Yield blocks of rows of a file, without the first `skip` rows."""
        raise NotImplementedError

    def cardinality(self) -> int:
        counts = [self.rows(path) for path in self.paths]
        return UNKNOWN_CARDINALITY if None in counts else sum(c or 0 for c in counts)

    def open(self, number: int, order: Array | None = None) -> Cursor:
        return _FileRowsCursor(self)

    def spec(self) -> Any:
        for path in self.paths:
            for block in self.parts(path, 0):
                return unbatched_specs(spec_of(block))
        raise ValueError(f"element_spec: {self.describe()} has no row to look at.")

    def contents(self) -> str:
        return " ".join(f"{os.path.basename(p)}:{os.path.getsize(p)}" for p in self.paths)

    def _described(self, verb: str) -> str:
        count = len(self.paths)
        files = os.path.basename(self.paths[0]) if count == 1 else f"{count} files"
        return f"{verb}({files}, {self.chosen.columns}, {self.chosen.labels})"


class _FileRowsCursor(Cursor):
    """The place is the number of the file and of the row in it."""

    columnar = True

    def __init__(self, node: FileRowsNode) -> None:
        self._node = node
        self._file = self._row = 0
        self._parts: Any = None
        self._block: Any = None
        self._at = self._rows = 0  # in the block

    def _load(self) -> bool:
        """Read a block if there is none; return whether there is a row."""
        while self._at == self._rows:
            if self._file == len(self._node.paths):
                return False
            if self._parts is None:
                self._parts = self._node.parts(self._node.paths[self._file], self._row)
            block = next(self._parts, END)
            self._at = self._rows = 0
            if block is END:
                self._parts, self._block = None, None
                self._file, self._row = self._file + 1, 0
            else:
                self._block, self._rows = block, _length(block)
        return True

    def _use(self, rows: int) -> None:
        self._at += rows
        self._row += rows

    def read(self) -> Any:
        if not self._load():
            return END
        self._use(1)
        return row_of(self._block, self._at - 1)

    def read_rows(self, count: int) -> tuple[int, Any]:
        parts, total = [], 0
        while total < count and self._load():
            rows = min(count - total, self._rows - self._at)
            parts.append(cut(self._block, self._at, self._at + rows))
            self._use(rows)
            total += rows
        return total, join(parts) if parts else None

    def skip(self, count: int) -> int:
        total = 0
        while total < count and self._file < len(self._node.paths):
            known = self._node.rows(self._node.paths[self._file])
            if self._parts is None and known is not None:  # files need not be read to be left out
                step = min(count - total, known - self._row)
                self._row += step
                total += step
                if self._row == known:
                    self._file, self._row = self._file + 1, 0
            elif self._load():
                step = min(count - total, self._rows - self._at)
                self._use(step)
                total += step
        return total

    def state(self) -> list[int]:
        return [self._file, self._row]

    def restore(self, state: list[int]) -> None:
        self._file, self._row = int(state[0]), int(state[1])

    def close(self) -> None:
        if self._parts is not None:
            self._parts.close()
            self._parts = None


def _length(block: Any) -> int:
    part = block[0] if isinstance(block, tuple) else block
    return len(next(iter(part.values()))) if part else 0


class ParquetNode(FileRowsNode):
    """Rows of Parquet files; groups of rows before the place are not read."""

    def __init__(self, paths: list[str], chosen: Chosen) -> None:
        super().__init__(paths, chosen)
        parquet = _pyarrow("parquet")
        self._counts: dict[str, int] = {}
        for path in paths:
            with parquet.ParquetFile(path) as file:
                self._counts[path] = file.metadata.num_rows
                chosen.names(file.schema_arrow.names, path)

    def rows(self, path: str) -> int | None:
        return self._counts[path]

    def parts(self, path: str, skip: int) -> Iterator[Any]:
        with _pyarrow("parquet").ParquetFile(path, pre_buffer=False) as file:
            names = self.chosen.names(file.schema_arrow.names, path)
            for group in range(file.metadata.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                if skip >= rows:
                    skip -= rows
                    continue
                # One group at a time: several would be read ahead, all of them in memory.
                batches = file.iter_batches(_ROWS, row_groups=[group], columns=names)
                yield from _blocks(batches, names, self.chosen, skip)
                skip = 0

    def describe(self) -> str:
        return self._described("from_parquet")


class CsvNode(FileRowsNode):
    """Rows of CSV files with a header; the lines before the place are parsed again."""

    def __init__(
        self, paths: list[str], chosen: Chosen, delimiter: str, dtypes: Mapping[str, str] | None
    ) -> None:
        super().__init__(paths, chosen)
        self._delimiter, self._dtypes = delimiter, dict(dtypes or {})

    def parts(self, path: str, skip: int) -> Iterator[Any]:
        csv, arrow = _pyarrow("csv"), _pyarrow("")
        types = {name: _arrow_type(arrow, dtype) for name, dtype in self._dtypes.items()}
        options = csv.ConvertOptions(column_types=types)
        with csv.open_csv(
            path, parse_options=csv.ParseOptions(delimiter=self._delimiter), convert_options=options
        ) as file:
            names = self.chosen.names(file.schema.names, path)
            yield from _blocks(file, names, self.chosen, skip)

    def describe(self) -> str:
        return self._described("from_csv")


def _arrow_type(arrow: Any, dtype: str) -> Any:
    return arrow.string() if dtype == "string" else arrow.from_numpy_dtype(np.dtype(dtype))


def _blocks(batches: Any, names: list[str], chosen: Chosen, skip: int) -> Iterator[Any]:
    """Yield the columns of each batch, without the first `skip` rows of all."""
    for batch in batches:
        if skip < batch.num_rows:
            rest = batch.slice(skip)
            yield chosen.element({n: arrow_to_numpy(rest.column(n), n) for n in names})
        skip = max(skip - batch.num_rows, 0)


def _pyarrow(module: str) -> Any:
    try:
        import pyarrow
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(
            "Dataset.from_parquet and from_csv need pyarrow: pip install pyarrow"
        ) from error
    return getattr(pyarrow, module) if module else pyarrow


def parquet_node(
    paths: PathLike | Sequence[PathLike],
    columns: Sequence[str] | None,
    label: str | Sequence[str] | None,
) -> ParquetNode:
    """Return the rows of Parquet files; see `Dataset.from_parquet`."""
    return ParquetNode(_files(paths, "from_parquet"), Chosen(columns, label))


def csv_node(
    paths: PathLike | Sequence[PathLike],
    columns: Sequence[str] | None,
    label: str | Sequence[str] | None,
    delimiter: str,
    dtypes: Mapping[str, str] | None,
) -> CsvNode:
    """Return the rows of CSV files; see `Dataset.from_csv`."""
    return CsvNode(_files(paths, "from_csv"), Chosen(columns, label), delimiter, dtypes)


def _files(paths: PathLike | Sequence[PathLike], verb: str) -> list[str]:
    given = paths if isinstance(paths, (list, tuple)) else [paths]
    result: list[str] = []
    for path in map(os.fspath, given):
        matches = [path] if os.path.exists(path) else sorted(glob.glob(path))
        if not matches:
            raise ValueError(f"{verb}: there is no file {path!r}.")
        result += matches
    return result
