"""What the report shows of the training: the plan as a table, and the curves of the log."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from m3b.markup.charts import MAX_SERIES, draw_line_chart
from m3b.markup.formatting import format_count, format_duration, format_figure, shorten
from m3b.markup.html import Html, replace_control_characters
from m3b.markup.json_values import as_dict, as_list, to_finite_number
from m3b.metrics.metric_tables import lower_is_better, metric_title
from m3b.report.run_files import RunFiles

FOLD_COLUMN, RATE_COLUMNS, TIME_COLUMNS = "fold", ("lr", "learning_rate"), ("seconds", "time")
AXES = (("step", "Steps"), ("epoch", "Epochs"), ("minutes", "Minutes"))
"""Axes of the curves by their preference: key and title."""
_PLAIN_COLUMNS = {FOLD_COLUMN, *RATE_COLUMNS, *TIME_COLUMNS, "epoch", "step", "seed"}
COLUMN_TITLES = {
    "train_loss": "training loss",
    "valid_loss": "validation loss",
    "loss": "training loss",
    "quality": "quality (the mean by which weights are kept)",
    "lr": "learning rate",
    "skill": "share of the median's error that is saved",
}
MAX_LOGGED_POINTS = 1500
MAX_SITE_ROWS = 60
"""Maximum number of points of one line; longer logs are thinned."""

Log = list[dict[str, str]]


@dataclass(frozen=True)
class Line:
    """One line of a chart: a column of one fold, with a position on each axis for each value.

    Args:
        column: title of the column, without the fold.
    """

    name: str
    x: dict[str, list[float]]
    y: list[float]
    column: str = ""


@dataclass(frozen=True)
class Curves:
    """One chart: lines over common axes.

    Args:
        axes: keys and titles of the axes that the log has.
        drawing: the chart as SVG, for pages without scripts and for print.
    """

    title: str
    axes: list[tuple[str, str]]
    lines: list[Line]
    drawing: Html

    def to_json(self) -> dict[str, Any]:
        """Return the data for the script of the page."""
        return {
            "title": replace_control_characters(self.title),
            "axes": self.axes,
            "lines": [{"name": replace_control_characters(line.name), "x": line.x, "y": line.y} for line in self.lines],
        }


def list_curves(log: Log) -> list[Curves]:
    """Return the charts of a training log: losses, validation metrics and learning rate, for each phase of its own."""
    charts = []
    for phase, rows in _group_by_phase(log).items():
        columns = list(dict.fromkeys(name for row in rows for name in row if name.lower() not in _PLAIN_COLUMNS))
        columns = [name for name in columns if any(_parse(row.get(name)) is not None for row in rows)]
        losses = [name for name in columns if "loss" in name.lower()]
        rates = [name for name in (rows[0] if rows else {}) if name.lower() in RATE_COLUMNS]
        errors = [name for name in columns if name not in losses and _is_error_with_unit(name, rows)]
        shares = [name for name in columns if name not in (*losses, *errors)]
        groups = (("Loss", losses), ("Validation error", errors), ("Validation", shares), ("Learning rate", rates))
        for title, names in groups:
            if chart := _make_chart(f"{title}, {phase}" if phase else title, names, rows):
                charts.append(chart)
    return charts


def _is_error_with_unit(name: str, rows: Log) -> bool:
    """Return whether a column is an error in the unit of the target, which hides shares from 0 to 1 in the same chart."""
    values = [value for row in rows if (value := _parse(row.get(name))) is not None]
    return lower_is_better(name.lower()) and max(values, default=0.0) > 1


def _group_by_phase(log: Log) -> dict[str, Log]:
    """Return the rows by the first column that holds words, such as the stages of a training; else all rows."""
    for name in log[0] if log else ():
        words = {row.get(name, "") for row in log}
        if any(words) and all(not word or _parse(word) is None for word in words) and not words & {"nan", "inf"}:
            return {word: [row for row in log if row.get(name, "") == word] for word in sorted(words)}
    return {"": log} if log else {}


def _make_chart(title: str, names: list[str], rows: Log) -> Curves | None:
    folds = list(dict.fromkeys(row.get(FOLD_COLUMN, "") for row in rows))
    lines: list[Line] = []
    lines_by_name: dict[str, list[list[tuple[float, float]]]] = defaultdict(list)
    axes: list[tuple[str, str]] | None = None
    for name in names[:MAX_SERIES]:
        display_name = COLUMN_TITLES.get(name.lower()) or metric_title(name.lower()) or name
        display_name = shorten(display_name.replace("_", " "), 80)
        for fold in folds:
            fold_rows = [row for row in rows if row.get(FOLD_COLUMN, "") == fold]
            points = [
                (positions, value)
                for number, row in enumerate(fold_rows)
                if (value := _parse(row.get(name))) is not None
                for positions in [_read_positions(row, number)]
            ]
            if not points:
                continue
            points = points[:: max(1, -(-len(points) // MAX_LOGGED_POINTS))]
            keys = set.intersection(*(set(positions) for positions, _ in points))
            line_axes = [axis for axis in (*AXES, ("row", "Row of the log")) if axis[0] in keys]
            axes = line_axes if axes is None else [axis for axis in axes if axis in line_axes]
            x_values = {key: [positions[key] for positions, _ in points] for key, _ in line_axes}
            fold_note = f", fold {shorten(fold, 20)}" if len(folds) > 1 else ""
            lines.append(Line(f"{display_name}{fold_note}", x_values, [value for _, value in points], display_name))
            lines_by_name[display_name].append(list(zip(x_values[line_axes[0][0]], lines[-1].y, strict=True)))
    if not lines or not axes:
        return None
    return Curves(title, axes, lines, draw_line_chart(title.lower(), axes[0][1].lower(), lines_by_name))


def _read_positions(row: dict[str, str], number: int) -> dict[str, float]:
    positions = {key: value for key, _ in AXES if (value := _parse(row.get(key))) is not None}
    for name in TIME_COLUMNS:
        if (seconds := _parse(row.get(name))) is not None:
            positions["minutes"] = seconds / 60
    return positions or {"row": float(number)}


def _parse(text: str | None) -> float | None:
    try:
        value = to_finite_number(float(text)) if text else None
    except ValueError:
        return None
    return value if value is not None and abs(value) < 1e12 else None


def list_site_rows(files: RunFiles) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of the table with one row a site and one column a validation figure."""
    figures = {name: as_dict(values) for name, values in files.site_figures.items()}
    metrics = list(dict.fromkeys(metric for values in figures.values() for metric in values if metric != "cases"))
    rows = [
        [
            shorten(name, 60),
            format_count(values.get("cases")),
            *(format_figure(values.get(metric)) for metric in metrics),
        ]
        for name, values in list(figures.items())[:MAX_SITE_ROWS]
    ]
    return ["Site", "Cases", *(metric_title(metric) for metric in metrics)], rows


def list_plan_rows(files: RunFiles) -> list[tuple[str, str]]:
    """Return the plan and what became of it, in words: network, input, steps, optimiser, augmentation, time."""
    plan = files.plan
    if not plan:
        return []
    network = as_dict(plan.get("network"))
    rows = [
        ("Network", _describe_network(network)),
        ("Weights", f"{format_count(files.parameter_count)} parameters" if files.parameter_count else ""),
        ("Starts from", _describe_start(network)),
        ("Input", _describe_input(plan)),
        ("Networks", _describe_folds(plan)),
        ("Encoder", _describe_encoder(plan, network)),
        ("Linear probe", _describe_probe(as_dict(plan.get("linear_probe")))),
        ("Self-training", shorten(as_dict(plan.get("self_training")).get("description") or "", 300)),
        ("Trained for", _describe_exact_amount(files) or _describe_amount(files.training_log)),
        ("Time planned", format_duration(60 * plan["minutes"]) if _is_number(plan.get("minutes")) else ""),
        ("Batch", f"{plan['batch']:g} at a time" if _is_number(plan.get("batch")) else ""),
        ("Loss", _describe_values(as_dict(plan.get("loss")))),
        ("Optimiser", _describe_optimiser(plan)),
        ("Augmentation", _describe_values(as_dict(plan.get("augment")))),
        ("Test-time augmentation", _describe_values(as_dict(plan.get("tta")))),
        ("Precision", shorten(plan["precision"], 40) if plan.get("precision") else ""),
        ("Seed", shorten(plan["seed"], 40) if plan.get("seed") is not None else ""),
    ]
    return [(name, text) for name, text in rows if text]


def _is_number(value: Any) -> bool:
    return to_finite_number(value) is not None


def _describe_network(network: dict[str, Any]) -> str:
    parts = [shorten(network["name"], 80)] if network.get("name") else []
    for key, text in (("filters", "filters"), ("width", "width"), ("dropout", "dropout")):
        if network.get(key):
            parts.append(f"{text} {shorten(network[key], 80)}")
    parts += [key.replace("_", " ") for key in ("residual", "deep_supervision") if network.get(key) is True]
    return ", ".join(parts)


def _describe_start(network: dict[str, Any]) -> str:
    """Return the pretrained weights by their folder's name; a path would name this machine."""
    names = [str(network[key]).rstrip("/").rpartition("/")[2] for key in
             ("pretrained", "image_model", "text_model") if network.get(key)]  # fmt: skip
    return f"pretrained weights: {shorten(', '.join(names), 120)}" if names else "random weights"


def _describe_input(plan: dict[str, Any]) -> str:
    sides = as_list(plan.get("patch")) or as_list(plan.get("size"))
    numbers = [side for side in map(to_finite_number, sides) if side is not None]
    parts = []
    tiles = as_dict(plan.get("tiles"))
    if numbers:
        kind = "patches of " if plan.get("patch") else ""
        kind = f"up to {format_count(tiles['count'])} tiles a slide of " if _is_number(tiles.get("count")) else kind
        parts.append(
            f"{kind}{' × '.join(f'{side:g}' for side in numbers)} {'pixels' if len(numbers) == 2 else 'voxels'}"
        )
    if _is_number(tiles.get("um")):
        parts.append(f"{tiles['um']:g} µm a pixel")
    if tiles:
        parts.append("pooled by gated attention")
    if _is_number(plan.get("channels")):
        parts.append("1 channel" if plan["channels"] == 1 else f"{plan['channels']:g} channels")
    spacing = [side for side in map(to_finite_number, as_list(plan.get("spacing"))) if side is not None]
    if spacing:
        parts.append(f"resampled to {' × '.join(f'{side:.3g}' for side in spacing)} mm")
    if plan.get("fit"):
        parts.append(f"fitted by {shorten(plan['fit'], 40)}")
    intensity = as_dict(plan.get("intensity"))
    if intensity.get("mode"):
        parts.append(f"intensities: {shorten(intensity['mode'], 40)}")
    return ", ".join(parts)


def _describe_encoder(plan: dict[str, Any], network: dict[str, Any]) -> str:
    """Return what processes volumes or clips and, for a delivered model, how validation chose it."""
    planned = {"slices": "2D network on slices", "both": "3D network and 2D network on slices, weighed on validation"}
    chosen = as_dict(plan.get("encoders")).get("description")
    return shorten(chosen, 200) if chosen else planned.get(str(network.get("encoder")), "")


def _describe_probe(rule: dict[str, Any]) -> str:
    """Return the frozen weights of a linear probe and, for a delivered model, its share."""
    name = as_dict(rule.get("origin")).get("name")
    if not name:
        return ""
    weight = to_finite_number(rule.get("weight"))
    part = (
        "delivered if it lowers the validation loss" if weight is None else f"weight {weight:g}, chosen on validation"
    )
    return f"frozen features of {shorten(name, 80)} ({part})"


def _describe_folds(plan: dict[str, Any]) -> str:
    folds = to_finite_number(plan.get("folds"))
    if folds is None:
        return ""
    names = "networks with the same validation part" if plan.get("cross_validation") is False else "folds"
    text = "one" if folds <= 1 else f"{folds:g} {names}, an ensemble"
    if plan.get("refit") is True:
        text = f"one trained on all cases, after {folds:g} folds that chose its settings"
    recipes = plan.get("recipes")
    settings = recipes.get("settings") if isinstance(recipes, dict) else None
    if isinstance(settings, list) and len(settings) > 1:
        text += f"; each is the mean of {len(settings)} networks of different recipes"
    return f"{text} ({shorten(plan['why_folds'], 200)})" if plan.get("why_folds") else text


def _describe_exact_amount(files: RunFiles) -> str:
    """Return steps, epochs and time as the template recorded them at the end of a training; else an empty text."""
    if files.notes.training is None:
        return ""
    steps, n_epochs, minutes = files.notes.training
    epochs = "1 epoch" if n_epochs == 1 else f"{n_epochs:,.4g} epochs"
    looks = to_finite_number(files.result.get("test_looks")) or 0
    added = "; this is the added training alone, from the weights of an earlier model" if looks > 1 else ""
    return f"{steps:,} steps, {epochs}, {format_duration(60 * minutes)}{added}"


def _describe_amount(log: Log) -> str:
    """Return steps, epochs and time of the longest fold of each phase."""
    texts = []
    for phase, rows in _group_by_phase(log).items():
        last: dict[str, float] = {}
        for row in rows:
            for key, value in _read_positions(row, 0).items():
                last[key] = max(last.get(key, -math.inf), value)
        parts = [f"{last['step']:,.0f} steps"] if "step" in last else []
        parts += [f"{last['epoch']:,.4g} epoch{'' if last['epoch'] == 1 else 's'}"] if "epoch" in last else []
        parts += [format_duration(60 * last["minutes"])] if "minutes" in last else []
        folds = {row.get(FOLD_COLUMN, "") for row in rows}
        text = ", ".join(parts) + (" for each network" if len(folds) > 1 and parts else "")
        texts.append(f"{phase}: {text}" if phase and text else text)
    return "; ".join(filter(None, texts))


def _describe_optimiser(plan: dict[str, Any]) -> str:
    parts = [shorten(plan["optimizer"], 40)] if plan.get("optimizer") else []
    rate, decay = to_finite_number(plan.get("lr")), to_finite_number(plan.get("weight_decay"))
    parts += [f"learning rate {rate:g}"] if rate is not None else []
    parts += [f"weight decay {decay:g}"] if decay is not None else []
    return ", ".join(parts)


def _describe_values(values: dict[str, Any]) -> str:
    """Return the settings that are in use, as `flip h, w; rotate 15`."""
    parts = []
    for key, value in values.items():
        if value in (None, False, 0, "", [], {}):
            continue
        text = ", ".join(map(str, value)) if isinstance(value, list) else "" if value is True else shorten(value, 60)
        parts.append(f"{key.replace('_', ' ')} {text}".strip())
    return shorten("; ".join(parts), 400)
