"""Runs of tests on copies of the checkout, each with one mutant in it."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from mutants import ROOT, Mutant, NotApplicable, mutated

LIMIT = 300  # seconds of computing for the tests of one mutant: a loop without end is found, too
_NO_SUCH_TEST = 4  # what pytest returns
_PATIENCE = 1800  # seconds by the clock, on a machine that others use
ORDINARY = "not slow and not gpu"
_LEFT_OUT = ("__pycache__", "*.egg-info", "build", "dist", "venv")


class Outcome(NamedTuple):
    """What became of a mutant.

    Attributes:
        verdict: "killed", "survived", "not applicable", or "unsound" where the tests fail without
            the mutant, too, or could not be run.
        by: the test that failed, or why there is none.
        seconds: how long the tests took.
    """

    verdict: str
    by: str
    seconds: float


class Copy:
    """A copy of the checkout in a temporary folder, in which mutants take turns."""

    def __init__(self, root: Path = ROOT) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="kerasish-mutants-")
        self.root = Path(self._folder.name)
        self._sound: dict[str, bool] = {}  # whether a test passes without mutants
        self._clock = time.time()
        for path in root.iterdir():
            if path.name.startswith(".") or path.name in _LEFT_OUT:
                continue
            if path.is_dir():
                ignored = shutil.ignore_patterns(".*", *_LEFT_OUT)
                shutil.copytree(path, self.root / path.name, ignore=ignored)
            else:
                shutil.copy2(path, self.root / path.name)

    def close(self) -> None:
        """Remove the copy."""
        self._folder.cleanup()

    def run(self, mutant: Mutant) -> Outcome:
        """Return what the tests of a mutant say of it; the copy is as before afterwards."""
        start = time.monotonic()
        path = self.root / mutant.file
        source = path.read_text("utf-8")
        try:
            changed = mutated(mutant, source)
        except NotApplicable as error:
            return Outcome("not applicable", str(error), 0.0)
        self._write(path, changed)
        try:
            verdict, by = self._verdict(mutant.tests)
        finally:
            self._write(path, source)
        if verdict == "killed" and not self._passes(by):
            verdict = "unsound"
        return Outcome(verdict, by, round(time.monotonic() - start, 1))

    def run_recorded(self, mutant: Mutant, by: str) -> Outcome:
        """Return what becomes of a mutant, by the test `by` if that fails with it.

        Args:
            by: the test that is recorded as having failed, or another text.
        """
        if "::" in by:
            result = self.run(mutant._replace(tests=(by,)))
            if result.verdict == "killed":
                return result
        return self.run(mutant)

    @contextmanager
    def changed(self, files: Mapping[str, str]) -> Iterator[None]:
        """Let files of the copy, by their paths there, have other texts inside the block.

        Files that are not there are made, and removed afterwards.
        """
        before = {
            name: (self.root / name).read_text("utf-8") if (self.root / name).exists() else None
            for name in files
        }
        try:
            for name, text in files.items():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                self._write(self.root / name, text)
            yield
        finally:
            for name, text in before.items():
                if text is None:
                    (self.root / name).unlink(missing_ok=True)
                else:
                    self._write(self.root / name, text)

    def _write(self, path: Path, text: str) -> None:
        """Write a source with a new time, so that no compiled file of another source is used."""
        path.write_text(text, "utf-8")
        self._clock += 2
        os.utime(path, (self._clock, self._clock))

    def _verdict(self, tests: tuple[str, ...]) -> tuple[str, str]:
        code, output = self.pytest("-m", ORDINARY, *tests)
        if code in (-signal.SIGXCPU, -signal.SIGKILL):
            return "killed", f"the limit of {LIMIT} seconds"
        if code == 0:
            return "survived", ""
        failed = re.search(r"^(?:FAILED|ERROR) (\S+?(?:\[.*?\])?)(?: - .*)?$", output, re.MULTILINE)
        if failed is None or code not in (1, 2):
            return "unsound", output.strip().rpartition("\n")[2][:200]
        return "killed", failed[1]

    def _passes(self, test: str) -> bool:
        """Return whether a test passes in the unchanged copy."""
        if "::" not in test and not test.endswith(".py"):
            return True
        if test not in self._sound:
            code = self.pytest(test)[0]
            if code == _NO_SUCH_TEST:  # a case that only the mutant has: the other cases count
                code = self.pytest(test.partition("[")[0])[0]
            self._sound[test] = code == 0
        return self._sound[test]

    def pytest(self, *arguments: str) -> tuple[int, str]:
        """Return (exit status, output) of pytest in the copy."""
        environment = {**os.environ, "PYTHONPATH": str(self.root)}
        for name in ("PYTEST_XDIST_WORKER", "KERASISH_TESTS_CACHE"):
            environment.pop(name, None)
        # -rfE: one line for the test that failed, whatever the terminal's width.
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "--tb=no", "-p",
                   "no:cacheprovider", *arguments]  # fmt: skip
        environment["COLUMNS"] = "1000"
        try:
            done = subprocess.run(
                command, cwd=self.root, env=environment, text=True, timeout=_PATIENCE,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                preexec_fn=_limit_computing,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return 3, f"{_PATIENCE} seconds were not enough"
        return done.returncode, done.stdout


def _limit_computing() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT + 5))
