"""Turns measurements into records for JSON and tables for people."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.larger_workloads import LARGER
from benchmarks.peers import ALL_PEERS
from benchmarks.rounds import Measured

# What kerasish's static engine has set out to reach: (of the fastest Keras, of the fastest raw).
GOALS: dict[str, tuple[float | None, float | None]] = {
    "mlp": (0.60, 0.75),
    "tiny": (0.05, 0.75),
    "cnn": (0.38, 0.75),
    "resnet20": (0.50, 0.75),
    "lstm": (0.45, 0.75),
    "transformer": (0.52, 0.75),
    **dict.fromkeys(LARGER, (0.50, 0.85)),
    "mobilenet": (0.30, 0.85),
}
_MEMORY_GOAL = 0.50  # of torch's peak resident size
_OURS = ("kerasish", "kerasish-eager")


def summarize(values: list[float]) -> dict[str, Any]:
    """Best, median and spread ((largest - best) / best) of `values`, with the values."""
    if not values:
        return {}
    best = min(values)
    return {
        "best": best,
        "median": statistics.median(values),
        "spread": (max(values) - best) / best,
        "values": values,
    }


def record_of(measured: Measured) -> dict[str, Any]:
    """`measured` as plain data: seconds and bytes."""
    if measured.failure:
        return {"failure": measured.failure, "detail": measured.detail}
    return {
        "steps": measured.steps,
        "step": summarize(measured.step),
        "call": summarize(measured.call),
        "cores": statistics.median(measured.cores) if measured.cores else None,
        "loss": measured.loss,
        "first_step": {
            "cold": measured.start.get("first_step_s"),
            "warm": measured.warm.get("first_step_s"),
        },
        "build": measured.start.get("build_s"),
        "import_in_worker": measured.start.get("import_s"),
        "parameters": measured.start.get("parameters"),
        "single": {
            name: {key: min(turn[key] for turn in turns) for key in ("best", "median")}
            for name, turns in measured.single.items()
        },
        "memory": {**measured.memory, "base_bytes": measured.start.get("base_bytes")},
    }


def compare_with_best(records: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Ratio of our step to the fastest peer's, for each of ours and each kind of peer.

    "best" divides the best rounds; "paired" is the median over rounds of the ratio within a round,
    which a drift of the machine's speed does not change.
    """
    ratios: dict[str, dict[str, Any]] = {}
    for ours in _OURS:
        mine = records.get(ours, {}).get("step")
        if not mine:
            continue
        rivals = {kind: fastest(records, kind) for kind in ("keras", "raw")}
        if ours == "kerasish-eager" and records.get("keras-torch", {}).get("step"):
            rivals["eager keras"] = "keras-torch"  # Keras's only backend that runs op by op
        for kind, rival in rivals.items():
            if rival is not None:
                theirs = records[rival]["step"]
                pairs = zip(mine["values"], theirs["values"], strict=False)
                ratios.setdefault(ours, {})[kind] = {
                    "peer": rival,
                    "best": mine["best"] / theirs["best"],
                    "median": mine["median"] / theirs["median"],
                    "paired": statistics.median(a / b for a, b in pairs),
                }
    return ratios


def fastest(records: dict[str, dict[str, Any]], kind: str) -> str | None:
    """Name of the peer of `kind` with the best step, or None where none was measured."""
    names = [name for name in records if ALL_PEERS[name].kind == kind and records[name].get("step")]
    return min(names, key=lambda name: records[name]["step"]["best"], default=None)


def format_table(header: list[str], rows: list[list[str]]) -> str:
    """`rows` under `header`: first column to the left, the others to the right."""
    lines = [header, *rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(header))]
    text = []
    for line in lines:
        cells = [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        text.append("  ".join([line[0].ljust(widths[0]), *cells]).rstrip())
    text.insert(1, "-" * max(len(line) for line in text))
    return "\n".join(text)


def show_time(seconds: float | None) -> str:
    """`seconds` in the unit that suits it, three digits; "-" for None."""
    if seconds is None:
        return "-"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}" if seconds < 1000 else f"{seconds:.0f} s"
    return f"{seconds * 1e9:.3g} ns"


def show_workload(name: str, entry: dict[str, Any]) -> str:
    """The table of one workload, with ratios and failures under it."""
    records, steps = entry["peers"], entry["steps"]
    title = f"{name}: {entry['summary']}, batch {entry['batch']}, {steps} steps a round at most"
    header = ["peer", "step best", "median", "spread", "fit call", "cores", "first cold", "warm"]
    header += ["predict 1", "call 1", "peak MB", "parameters"]
    rows = [_row(peer, record) for peer, record in records.items() if "failure" not in record]
    lines = [title, format_table(header, rows)]
    lines += _ratio_lines(name, entry["ratios"])
    for peer, record in records.items():
        if "failure" in record:
            lines.append(f"FAILED {peer}: {record['failure']}")
    return "\n".join(lines + _memory_lines(records) + _parameter_lines(records))


def _row(peer: str, record: dict[str, Any]) -> list[str]:
    step, single = record["step"], record["single"]
    peak = record["memory"].get("peak_bytes")
    cores = record["cores"]
    return [
        peer,
        show_time(step.get("best")),
        show_time(step.get("median")),
        f"{step['spread']:.0%}" if step else "-",
        show_time(record["call"].get("median")),
        f"{cores:.2f}" if cores else "-",
        show_time(record["first_step"]["cold"]),
        show_time(record["first_step"]["warm"]),
        show_time(single.get("predict", {}).get("median")),
        show_time(single.get("call", {}).get("median")),
        f"{peak / 1e6:.0f}" if peak else "-",
        f"{record['parameters']:,}",
    ]


def _ratio_lines(name: str, ratios: dict[str, dict[str, Any]]) -> list[str]:
    lines = []
    for ours, kinds in ratios.items():
        for kind, ratio in kinds.items():
            goals = dict(zip(("keras", "raw"), GOALS.get(name, ()), strict=False))
            goal = goals.get(kind) if ours == "kerasish" else None
            verdict = ""
            if goal is not None:
                verdict = f", goal {goal:.2f}: {'met' if ratio['best'] <= goal else 'MISSED'}"
            lines.append(
                f"{ours} / fastest {kind} ({ratio['peer']}): best {ratio['best']:.3f}, "
                f"median {ratio['median']:.3f}, paired {ratio['paired']:.3f}{verdict}"
            )
    return lines


def _memory_lines(records: dict[str, dict[str, Any]]) -> list[str]:
    """Our peak resident size, as a share of torch's."""
    sizes = {name: record.get("memory", {}).get("peak_bytes") for name, record in records.items()}
    if not sizes.get("kerasish") or not sizes.get("torch"):
        return []
    share = sizes["kerasish"] / sizes["torch"]
    verdict = "met" if share <= _MEMORY_GOAL else "MISSED"
    return [f"peak resident size: kerasish / torch {share:.3f}, goal {_MEMORY_GOAL:.2f}: {verdict}"]


def _parameter_lines(records: dict[str, dict[str, Any]]) -> list[str]:
    counts = {name: record["parameters"] for name, record in records.items() if "step" in record}
    if counts and max(counts.values()) > 1.01 * min(counts.values()):
        return [f"WARNING: not the same model, parameters differ: {counts}"]
    return []


def show_imports(imports: dict[str, dict[str, Any]]) -> str:
    """The table of import times."""
    rows = [
        [peer, show_time(times["best"]), show_time(times["median"]), f"{times['spread']:.0%}"]
        if times
        else [peer, "failed", "-", "-"]
        for peer, times in imports.items()
    ]
    return "import, fresh process\n" + format_table(["peer", "best", "median", "spread"], rows)


def show_machine(facts: dict[str, Any]) -> str:
    """Machine, versions and settings, a line each."""
    machine, settings = facts["machine"], facts["settings"]
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    threads = ", ".join(f"{name}={value}" for name, value in settings["variables"].items())
    return "\n".join(
        [
            f"machine: {machine['cpu']}, {machine['cores']} cores "
            f"({' '.join(machine['instructions']) or 'plain'}), {machine['memory_gib']} GiB, "
            f"{machine['system']}, Python {machine['python']}, load {machine['load']}",
            f"versions: {versions}",
            f"threads: {settings['threads'] or 'each library as it comes'}"
            f"{'; set by the user: ' + threads if threads else ''}"
            f"{'; with one busy process' if settings['busy'] else ''}"
            f"; {settings['rounds']} rounds, alternating; by {settings['method']}"
            f" on {settings['device']}",
        ]
    )
