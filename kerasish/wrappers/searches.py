"""The progress bar of a running search, and a data frame of its results."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import joblib
from sklearn.base import is_classifier
from sklearn.model_selection import ParameterGrid, ParameterSampler, check_cv

_lock = threading.Lock()
_shown: dict[int, _Count] = {}  # thread -> the counter of its searches
_plain_call = joblib.Parallel.__call__
_plain_print = joblib.Parallel.print_progress


class _Count:
    """A bar, and the joblib call that advances it: the outermost one of its thread."""

    def __init__(self, bar: Any) -> None:
        self.bar, self.call, self.counted = bar, None, 0

    def advance(self) -> None:
        """Advance the bar to the number of finished tasks."""
        with _lock:
            if self.call is not None:
                finished = self.call.n_completed_tasks
                self.bar.update(finished - self.counted)
                self.counted = finished


@contextlib.contextmanager
def search_progress(search: Any = None, **bar_arguments: Any) -> Iterator[Any]:
    """Show a progress bar for the fits of the searches in this block; yield the bar.

    It counts the tasks that joblib finishes for this thread, anywhere: sequentially, in
    threads, in processes, or on a cluster.

    Args:
        search: the search that will run. It gives the number of fits, if that is known in advance
            (`GridSearchCV`, `RandomizedSearchCV`); otherwise the bar has no total;
            None: the number of fits is not known.
        **bar_arguments: for `tqdm`, as `desc`, `total`, `file`, `disable`.

    Example:
        >>> import io
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.model_selection import GridSearchCV
        >>> search = GridSearchCV(LogisticRegression(max_iter=500), {"C": [0.1, 1.0]}, cv=3)
        >>> with search_progress(search, file=io.StringIO()) as bar:
        ...     fitted = search.fit(*load_iris(return_X_y=True))
        >>> bar.n, bar.total
        (6, 6)
    """
    from tqdm.auto import tqdm

    settings = {"total": fits_of(search), "unit": "fit", **bar_arguments}
    thread = threading.get_ident()
    with tqdm(**settings) as bar:
        with _lock:
            outer = _shown.get(thread)
            if not _shown:
                joblib.Parallel.__call__ = _call
                joblib.Parallel.print_progress = _print_progress
            _shown[thread] = _Count(bar)
        try:
            yield bar
        finally:
            with _lock:
                _shown.pop(thread)
                if outer is not None:
                    _shown[thread] = outer
                if not _shown:
                    joblib.Parallel.__call__ = _plain_call
                    joblib.Parallel.print_progress = _plain_print


def _call(self: Any, iterable: Any) -> list[Any]:
    """Run joblib's method, and update the bar of this thread."""
    count = _shown.get(threading.get_ident())
    if count is None or count.call is not None:
        return _plain_call(self, iterable)
    count.call, count.counted, self._count = self, 0, count
    try:
        return _plain_call(self, iterable)
    finally:
        count.advance()
        count.call = None
        del self._count


def _print_progress(self: Any) -> None:
    count = vars(self).get("_count")
    if count is not None:
        count.advance()
    _plain_print(self)


def fits_of(search: Any) -> int | None:
    """Return the number of fits of a search before its refit; None if it depends on the data.

    Example:
        >>> from sklearn.linear_model import Ridge
        >>> from sklearn.model_selection import GridSearchCV
        >>> fits_of(GridSearchCV(Ridge(), {"alpha": [1, 2, 3]}, cv=4))
        12
    """
    if hasattr(search, "factor"):  # successive halving: the iterations depend on the rows
        return None
    if hasattr(search, "param_grid"):
        candidates = len(ParameterGrid(search.param_grid))
    elif hasattr(search, "param_distributions"):
        candidates = len(ParameterSampler(search.param_distributions, search.n_iter))
    else:
        return None
    try:
        folds = check_cv(search.cv, classifier=is_classifier(search.estimator)).get_n_splits()
    except (TypeError, ValueError):  # as many folds as the data have rows, or groups
        return None
    return candidates * folds


def results_frame(search: Any) -> Any:
    """Return the results of a fitted search as a pandas DataFrame, the best candidate first.

    Args:
        search: a fitted search, such as `GridSearchCV`.

    Columns: the parameters, by their last names if these are distinct; then for each score its
    `mean_test_`, `std_test_` and `rank_test_` (train scores too, if available), and the mean times
    in seconds. `cv_results_` has the rest.

    Raises:
        ValueError: the search was not fitted.
        ImportError: pandas is not installed.

    Example:
        >>> from sklearn.model_selection import GridSearchCV
        >>> from sklearn.tree import DecisionTreeClassifier
        >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1]
        >>> search = GridSearchCV(DecisionTreeClassifier(), {"max_depth": [1, 2]}, cv=2).fit(X, y)
        >>> len(results_frame(search))
        2
    """
    try:
        import pandas
    except ImportError as error:
        raise ImportError("results_frame needs pandas: pip install pandas") from error
    if not hasattr(search, "cv_results_"):
        raise ValueError(f"search: expected a fitted search with cv_results_, got {search!r}.")
    results = search.cv_results_
    names = list(dict.fromkeys(name for params in results["params"] for name in params))
    short = [name.rsplit("__", 1)[-1] for name in names]
    columns = {
        (last if short.count(last) == 1 else name): [p.get(name) for p in results["params"]]
        for name, last in zip(names, short)
    }
    scores = [n for n in results if n.startswith(("mean_t", "std_t", "rank_t")) and "time" not in n]
    times = ["mean_fit_time", "mean_score_time"]
    iterations = [n for n in ("iter", "n_resources") if n in results]
    columns |= {name: results[name] for name in [*iterations, *scores, *times]}
    ranks = [name for name in scores if name.startswith("rank_")]
    return pandas.DataFrame(columns).sort_values(ranks[0], kind="stable", ignore_index=True)
