"""Format numbers, times and texts for readers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from m3b.markup.json_values import to_finite_number


def format_figure(value: Any) -> str:
    """Return a number with three decimals, or a dash."""
    finite = to_finite_number(value)
    return "–" if finite is None else f"{finite:.3f}"


def format_interval(low: Any, high: Any) -> str:
    """Return an interval, or a dash."""
    return (
        "–"
        if to_finite_number(low) is None or to_finite_number(high) is None
        else f"{format_figure(low)} to {format_figure(high)}"
    )


def count_decimals(values: Iterable[float], digits: int = 4) -> int:
    """Return the number of decimals with which the largest of some values has so many digits; at most nine."""
    largest = max((abs(value) for value in values), default=0.0)
    return min(max(digits - 1 - math.floor(math.log10(largest)), 0), 9) if largest > 0 else digits - 1


def format_count(value: Any) -> str:
    """Return an integer with separators, or a dash."""
    finite = to_finite_number(value)
    return "–" if finite is None else f"{finite:,.0f}"


def format_duration(seconds: Any) -> str:
    """Return `4.2 s`, `3 min 12 s` or `2 h 5 min`; a dash if unknown."""
    finite = to_finite_number(seconds)
    if finite is None or finite < 0:
        return "–"
    if finite < 60:
        return f"{finite:.1f} s"
    minutes, remaining_seconds = divmod(round(finite), 60)
    return f"{minutes} min {remaining_seconds} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def format_size(byte_count: int) -> str:
    """Return a size such as `1.5 MB`."""
    value = float(byte_count)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def format_time(timestamp: Any) -> str:
    """Return seconds since the epoch as a UTC time; empty if unknown."""
    finite = to_finite_number(timestamp)
    if finite is None or not 0 < finite < 32_503_680_000:
        return ""
    return datetime.fromtimestamp(finite, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def shorten(value: Any, max_chars: int = 160) -> str:
    """Return a value on one line, cut at the end."""
    if not isinstance(value, str):
        value = json.dumps(value, ensure_ascii=False, default=str)
    text = " ".join(value.split())
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"


def cut_at_word(text: str, max_chars: int) -> str:
    """Return a text on one line, cut after a word if it is longer, with the number of words that are left out.

    A text with next to no spaces is cut after `max_chars` characters.
    """
    words = text.split()
    line = " ".join(words)
    if len(line) <= max_chars:
        return line
    shown = line[: line.rfind(" ", 0, max_chars + 1)] if " " in line[: max_chars + 1] else ""
    if 2 * len(shown) < max_chars:
        return f"{line[:max_chars]}... ({len(line) - max_chars:,} more characters)"
    count = len(words) - len(shown.split())
    return f"{shown} ... ({count:,} more word{'s' * (count > 1)})"


def cut_middle(text: str, head: int = 1200, tail: int = 800) -> str:
    """Return a long text without its middle."""
    if len(text) <= head + tail + 40:
        return text
    return f"{text[:head]}\n… {len(text) - head - tail:,} characters left out …\n{text[-tail:]}"
