"""Timed steps as a page, as a trace for Chrome and Perfetto, and as files for TensorBoard."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from pathlib import Path

    from kerasish.backends.backend import Formula, Peaks, Timing
    from kerasish.callbacks.step_timer import StepTimer
    from kerasish.engine.model.model import Model

_STYLE = """
:root { color-scheme: light dark; font-family: system-ui, sans-serif; }
body { margin: 1.5rem auto; max-width: 90rem; padding: 0 1rem; }
.step { display: flex; height: 2.2rem; overflow: hidden; border-radius: 4px; margin: 1rem 0; }
.step div { min-width: 1px; border-right: 1px solid #8884; }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem; }
th, td { text-align: left; padding: 0.2rem 0.6rem; border-bottom: 1px solid #8884; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
"""
_COLUMNS = (
    "part", "layer", "line", "result", "calls", "µs per step", "% of the step", "MFLOP", "kB",
    "GFLOP/s", "GB/s", "% of the peak",
)  # fmt: skip
_TEXTS = 4  # columns of text


class Part(NamedTuple):
    """A kind of part of a step: all records of one name, layer and result.

    Attributes:
        name: of the op or the kernel.
        layer: the layers that it belongs to.
        result: dtype and shape of what it computes.
        calls: how often it runs per step.
        seconds: per step, the median over the timed steps.
        rate: bytes per second.
        line: "file:line" of the user's code.
        flops: floating-point operations per step.
        nbytes: bytes read and written per step.
        share: the least time that it could take on this machine, by its time; None if that is not
            known.
    """

    name: str
    layer: str
    result: str
    calls: int
    seconds: float
    rate: float
    line: str
    flops: int
    nbytes: int
    share: float | None


def lines_of(model: Model) -> dict[str, str]:
    """Return path, or name, of a layer -> "file:line" where the user's code makes it."""
    layers = [layer for layer in model.flatten_layers() if layer.created_at is not None]
    names = Counter(layer.name for layer in layers)
    lines = {}
    for layer in layers:
        lines[layer.path] = line = "{}:{}".format(*layer.created_at)
        if names[layer.name] == 1:  # a layer may be built before its model has a name
            lines[layer.name] = line
    return lines


Lined = TypeVar("Lined", "Timing", "Formula")


def placed(timing: Lined, lines: Mapping[str, str]) -> Lined:
    """Return a timing or formula with the line where its layer is made, if it has no line."""
    path = timing.layer
    while not timing.line and path:
        line = lines.get(path) or lines.get(path.rpartition("/")[2])
        if line:
            return timing._replace(line=line)
        path = path.rpartition("/")[0]
    return timing


def parts_of(timed: Sequence[Sequence[Timing]], peaks: Peaks | None) -> list[Part]:
    """Return the parts of timed steps, the longest first.

    Args:
        timed: the timings of each step.
        peaks: what the machine does at best, or None.
    """
    import statistics

    known: dict[tuple[str, str, str], list[list[Timing]]] = {}
    for number, timings in enumerate(timed):
        for timing in timings:
            known.setdefault(timing[:3], [[] for _ in timed])[number].append(timing)
    parts = []
    for (name, layer, result), steps in known.items():
        seconds = statistics.median(sum(t.seconds for t in step) for step in steps)
        nbytes = int(statistics.median(sum(t.nbytes for t in step) for step in steps))
        flops = int(statistics.median(sum(t.flops for t in step) for step in steps))
        line = next((t.line for step in steps for t in step if t.line), "")
        share = None
        if peaks is not None and seconds and (flops or nbytes):
            share = max(flops / peaks.flops, nbytes / peaks.nbytes) / seconds
        rate = nbytes / seconds if seconds else 0.0
        calls = max(map(len, steps))
        parts.append(Part(name, layer, result, calls, seconds, rate, line, flops, nbytes, share))
    return sorted(parts, key=lambda part: -part.seconds)


# --- page -----------------------------------------------------------------------------------------


def page(name: str, timer: StepTimer, timed: Sequence[Sequence[Timing]]) -> str:
    """Return a self-contained HTML page, without scripts.

    Args:
        name: the model's name.
        timer: what was timed.
        timed: its timings, with lines.
    """
    import statistics

    rows = parts_of(timed, timer.peaks)
    total = statistics.median(timer.seconds)
    sum_of_parts = sum(part.seconds for part in rows) or 1.0
    bars = "".join(
        f'<div style="flex:{t.seconds / sum_of_parts:.6f};'
        f'background:hsl({_hue(t.layer)} 55% 60%)" title="{_escaped(_title(t))}"></div>'
        for t in timed[-1]
    )
    head = "".join(
        f"<th>{c}</th>" if n < _TEXTS else f'<th class="n">{c}</th>' for n, c in enumerate(_COLUMNS)
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>Steps of {_escaped(name)}</title><style>{_STYLE}</style></head>"
        f"<body><h1>Training steps of {_escaped(name)}</h1>"
        f"<p>{_summary(timer, total, sum_of_parts)}</p>"
        f'<div class="step">{bars}</div><div class="scroll"><table><thead><tr>{head}</tr>'
        f"</thead><tbody>{''.join(_row(part, total) for part in rows)}</tbody></table></div>"
        "</body></html>"
    )


def _summary(timer: StepTimer, total: float, sum_of_parts: float) -> str:
    text = (
        f"{len(timer.seconds)} steps were measured. A step took {total * 1e3:.3f} ms (median); its "
        f"parts took {sum_of_parts * 1e3:.3f} ms."
    )
    if timer.plain_seconds is not None:
        text += f" Without measuring, a step took {timer.plain_seconds * 1e3:.3f} ms."
    if timer.peaks is not None:
        text += (
            f" At its peak this machine computes {timer.peaks.flops / 1e9:,.0f} GFLOP/s (a product "
            f"of float32) and moves {timer.peaks.nbytes / 1e9:,.1f} GB/s (a copy in memory); what "
            "is in a cache moves faster."
        )
    return f"{text} The bar is the last step in the order of execution, one color per layer."


def _row(part: Part, total: float) -> str:
    seconds = part.seconds or float("inf")
    share = "" if part.share is None else f"{100 * part.share:.0f}"
    numbers = (
        str(part.calls), f"{part.seconds * 1e6:,.1f}", f"{100 * part.seconds / total:.1f}",
        f"{part.flops / 1e6:,.2f}", f"{part.nbytes / 1e3:,.1f}",
        f"{part.flops / seconds / 1e9:,.1f}", f"{part.rate / 1e9:.1f}", share,
    )  # fmt: skip
    texts = (part.name, part.layer, _short(part.line), part.result)
    return (
        "<tr>"
        + "".join(f"<td>{_escaped(text)}</td>" for text in texts)
        + "".join(f'<td class="n">{number}</td>' for number in numbers)
        + "</tr>"
    )


def _title(t: Timing) -> str:
    line = f", {_short(t.line)}" if t.line else ""
    return f"{t.name}, {t.layer or 'no layer'}{line}: {t.seconds * 1e6:.1f} µs"


def _short(line: str) -> str:
    return os.path.basename(line)


def _escaped(text: str) -> str:
    import html  # not needed to time steps

    return html.escape(text, quote=True)


def _hue(layer: str) -> int:
    return sum(map(ord, layer)) * 47 % 360


# --- traces ---------------------------------------------------------------------------------------


def trace(timed: Sequence[Sequence[Timing]]) -> dict[str, Any]:
    """Return steps in Chrome's trace format, one after the other."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "kerasish"}},
        {"ph": "M", "pid": 1, "tid": 1, "name": "thread_name", "args": {"name": "parts"}},
        {"ph": "M", "pid": 1, "tid": 2, "name": "thread_name", "args": {"name": "steps"}},
    ]
    now = 0.0
    for number, timings in enumerate(timed):
        start = now
        for t in timings:
            events.append({
                "name": t.name, "cat": t.layer or "step", "ph": "X", "pid": 1, "tid": 1,
                "ts": now * 1e6, "dur": t.seconds * 1e6,
                "args": {
                    "step": number, "layer": t.layer, "line": t.line, "result": t.result,
                    "flops": t.flops, "bytes": t.nbytes,
                },
            })  # fmt: skip
            now += t.seconds
        events.append({
            "name": f"step {number}", "cat": "step", "ph": "X", "pid": 1, "tid": 2,
            "ts": start * 1e6, "dur": (now - start) * 1e6, "args": {"step": number},
        })  # fmt: skip
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def write_profile(folder: str | os.PathLike[str], timed: Sequence[Sequence[Timing]]) -> Path:
    """Write steps where TensorBoard's profile plugin looks for them; return the new folder.

    The files: `<host>.xplane.pb`, which the plugin reads, and `<host>.trace.json.gz`, which its
    trace viewer, Chrome and Perfetto read.

    Args:
        folder: TensorBoard's `log_dir`.
        timed: the timings of each step.
    """
    import gzip
    import socket
    from pathlib import Path

    run = Path(folder, "plugins", "profile", time.strftime("%Y_%m_%d_%H_%M_%S"))
    run.mkdir(parents=True, exist_ok=True)
    host = socket.gethostname()
    with gzip.open(run / f"{host}.trace.json.gz", "wt", encoding="utf-8") as file:
        json.dump(trace(timed), file)
    (run / f"{host}.xplane.pb").write_bytes(_space(timed, host))
    return run


# The messages of xplane.proto that are needed: (number of the field, bytes or integer), in the
# wire format of protocol buffers.


def _varint(number: int) -> bytes:
    result = bytearray()
    while number > 127:
        result.append(number & 127 | 128)
        number >>= 7
    return bytes([*result, number])


def _message(fields: Iterable[tuple[int, bytes | str | int]]) -> bytes:
    parts = []
    for number, value in fields:
        if isinstance(value, int):
            parts.append(_varint(number << 3) + _varint(value))
        else:
            data = value.encode() if isinstance(value, str) else value
            parts.append(_varint(number << 3 | 2) + _varint(len(data)) + data)
    return b"".join(parts)


_STATS = ("layer", "line", "result", "flops", "bytes")


def _space(timed: Sequence[Sequence[Timing]], host: str) -> bytes:
    """Return an XSpace: one plane of the host, a line of steps and a line of parts."""
    names: dict[str, int] = {}
    parts: list[bytes] = []
    steps: list[bytes] = []
    now = 0  # picoseconds
    for number, timings in enumerate(timed):
        start = now
        for t in timings:
            duration = int(t.seconds * 1e12)
            parts.append(_event(names, t.name, now, duration, _stats(t)))
            now += duration
        steps.append(_event(names, f"step {number}", start, now - start, []))
    began = time.time_ns()
    lines = [
        _message([(1, 1), (2, "steps"), (3, began), (9, now), *((4, e) for e in steps)]),
        _message([(1, 2), (2, "parts"), (3, began), (9, now), *((4, e) for e in parts)]),
    ]
    plane = _message([
        (1, 1),
        (2, "/host:CPU"),
        *((3, line) for line in lines),
        *((4, _entry(i, _message([(1, i), (2, name)]))) for name, i in names.items()),
        *((5, _entry(i, _message([(1, i), (2, name)]))) for i, name in enumerate(_STATS, 1)),
    ])  # fmt: skip
    return _message([(1, plane), (4, host)])


def _entry(key: int, value: bytes) -> bytes:
    return _message([(1, key), (2, value)])


def _event(names: dict[str, int], name: str, start: int, length: int, stats: list[bytes]) -> bytes:
    number = names.setdefault(name, len(names) + 1)
    return _message([(1, number), (2, start), (3, length), *((4, s) for s in stats)])


def _stats(t: Timing) -> list[bytes]:
    texts = [(i, v) for i, v in enumerate((t.layer, t.line, t.result), 1) if v]
    numbers = [(4, t.flops), (5, t.nbytes)]
    return [
        *(_message([(1, i), (5, text)]) for i, text in texts),
        *(_message([(1, i), (3, n)]) for i, n in numbers),
    ]
