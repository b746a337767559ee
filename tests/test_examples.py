"""The examples and the README's code, run as a newcomer runs them."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from example_goals import GOALS, OUTSIDE_THE_GALLERY, check_goals

import kerasish

CHECKOUT = Path(__file__).parent.parent
EXAMPLES = sorted((CHECKOUT / "examples").glob("*.py"))
BLOCKS = re.findall(r"```python\n(.*?)```", (CHECKOUT / "README.md").read_text("utf-8"), re.S)


# What some examples need other than the extra `test`: examples say so and end where it is missing.
OPTIONAL = {"hyperparameters_optuna": "optuna"}


def run(
    script: Path, *arguments: str, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run an example in a process and folder of its own, with the package that is under test."""
    package = str(Path(kerasish.__file__).parent.parent)
    # Threads that wait for each other take many times as long where other tests use the cores, too.
    threads = {"OMP_NUM_THREADS": "1"} if "PYTEST_XDIST_WORKER" in os.environ else {}
    return subprocess.run(
        [sys.executable, "-W", "error", str(script), *arguments], cwd=folder,
        env={**os.environ, **threads, "PYTHONPATH": package, "PYTHONUTF8": "1",
             "MPLBACKEND": "Agg"},
        capture_output=True, text=True, encoding="utf-8", timeout=300,
    )  # fmt: skip


@pytest.fixture
def quickstart():
    path = CHECKOUT / "examples" / "quickstart.py"
    spec = importlib.util.spec_from_file_location("quickstart", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_readme_has_a_taste():
    lines = [line for line in BLOCKS[0].splitlines() if line.strip()]
    assert len(lines) <= 10
    assert "import kerasish" in lines[0]


def test_the_taste_learns(capsys):
    names: dict = {}
    exec(compile(BLOCKS[0], "README.md", "exec"), names)
    history = names["model"].history.history
    assert history["val_accuracy"][-1] > 0.9
    assert history["loss"][-1] < history["loss"][0] / 4
    assert "Epoch 20/20" in capsys.readouterr().out


@pytest.mark.parametrize("block", BLOCKS[1:])
def test_the_readme_says_what_its_code_gives(block):
    """Each line `expression  # value` gives that value."""
    names = {"keras": kerasish}
    said = 0
    for statement in ast.parse(block).body:
        code = ast.get_source_segment(block, statement)
        comment = block.splitlines()[statement.end_lineno - 1].partition("  # ")[2]
        if isinstance(statement, ast.Expr) and comment:
            assert np.array_equal(eval(code, names), ast.literal_eval(comment)), code
            said += 1
        else:
            exec(code, names)
    assert said


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_say_what_they_do(path):
    tree = ast.parse(path.read_text("utf-8"))
    title, line, *text = (ast.get_docstring(tree) or "").splitlines()
    if path.stem != "quickstart":  # no page of the gallery
        assert line == "=" * len(title)
    assert len(text) > 1
    story = "\n# %%\n" in path.read_text("utf-8")
    assert story or ast.unparse(tree.body[-1]).startswith("if __name__ == '__main__':")


# The example for several processes draws nothing.
@pytest.mark.parametrize(
    "path", [p for p in EXAMPLES if p.stem != "two_ranks"], ids=lambda path: path.name
)
def test_examples_say_what_to_install(path):
    """Where Matplotlib is missing, an example ends with one line that says how to install it."""
    text = path.read_text("utf-8")
    if path.stem == "quickstart":  # it continues without a picture
        assert "except ImportError:" in text
        return
    imports = [line for line in text.splitlines() if "matplotlib import" in line]
    assert imports == ["    from matplotlib import pyplot as plt"]
    wanted = (
        'except ImportError:\n    sys.exit("This example draws a picture: pip install matplotlib")'
    )
    assert f"try:\n{imports[0]}\n{wanted}\n" in text


@pytest.mark.parametrize(
    ("missing", "stem"),
    [
        ("matplotlib", "gan"),
        ("optuna", "hyperparameters_optuna"),
        ("tensorboard", "tensorboard_logs"),
    ],
)
def test_examples_end_where_a_package_is_missing(missing, stem, monkeypatch):
    for name in [missing, *(n for n in sys.modules if n.startswith(f"{missing}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    path = CHECKOUT / "examples" / f"{stem}.py"
    imports = path.read_text("utf-8").split("import kerasish")[0]
    with pytest.raises(SystemExit, match=f"pip install .*{missing}"):
        exec(compile(imports, str(path), "exec"), {})


def _in_its_stage(path):
    marks = [pytest.mark.slow]
    if path.stem not in OUTSIDE_THE_GALLERY:
        marks.append(pytest.mark.gallery)
    return pytest.param(path, marks=marks, id=path.name)


@pytest.mark.parametrize("path", [_in_its_stage(p) for p in EXAMPLES if p.stem != "quickstart"])
def test_examples_run_without_a_warning_and_learn(path, tmp_path):
    package = OPTIONAL.get(path.stem)
    if package and importlib.util.find_spec(package) is None:
        pytest.skip(f"{path.name} needs {package}: pip install {package}")
    done = run(path, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout
    assert not done.stderr
    check_goals(path.stem, done.stdout)
    picture = re.search(r"^picture: (.*)$", done.stdout, re.M)
    if picture:
        assert (tmp_path / picture[1]).stat().st_size > 10_000
    assert len(list(tmp_path.iterdir())) == bool(picture), "nothing else is left behind"


def test_goals_are_of_examples():
    assert set(GOALS) <= {path.stem for path in EXAMPLES}


@pytest.mark.slow
def test_quickstart_is_killed_resumes_and_recognizes_digits(tmp_path):
    """The main job: its exit status says whether more than 97 % were recognized."""
    done = run(CHECKOUT / "examples" / "quickstart.py", "--output", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr
    first, second = done.stdout.split("2. Resume")
    epochs = [int(n) for n in re.findall(r"^Epoch (\d+)/", first, re.M)]
    rest = [int(n) for n in re.findall(r"^Epoch (\d+)/", second, re.M)]
    assert epochs == list(range(1, len(epochs) + 1))
    assert rest[0] in (epochs[-1], epochs[-1] + 1), "continues at the backup"
    assert "stop" in second, "early stopping says so"
    accuracy = float(re.search(r"([\d.]+)% of 360 held-out", done.stdout)[1])
    assert accuracy > 97
    assert "<- best" in done.stdout
    assert (tmp_path / "quickstart.png").stat().st_size > 20_000
    assert not (tmp_path / "backup").exists(), "removed once the training has ended"
    assert max(map(len, done.stdout.splitlines())) < 200


def test_quickstart_draws_nothing_without_matplotlib(quickstart, tmp_path, monkeypatch):
    log = {1: {"loss": 1.0, "val_loss": 1.0, "accuracy": 0.5, "val_accuracy": 0.5}}
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert quickstart.draw(tmp_path, log, np.eye(10, dtype=int)) is None
    assert not list(tmp_path.iterdir())


def test_quickstart_reads_each_epoch_of_the_log_once(quickstart, tmp_path):
    rows = "epoch,loss,val_loss\n0,3,3\n1,2,2\n1,1.5,2.5\n"
    (tmp_path / "log.csv").write_text(rows)
    assert quickstart.read_log(tmp_path) == {
        1: {"loss": 3, "val_loss": 3}, 2: {"loss": 1.5, "val_loss": 2.5}
    }  # fmt: skip
    quickstart.clean(tmp_path)
    assert not list(tmp_path.iterdir())


def test_quickstart_says_when_the_child_ends_too_early(quickstart, tmp_path, monkeypatch):
    monkeypatch.setattr(quickstart, "__file__", str(CHECKOUT / "tests" / "no_such_script.py"))
    with pytest.raises(SystemExit, match="ended by itself, with status 2"):
        quickstart.train_until_killed(tmp_path)
