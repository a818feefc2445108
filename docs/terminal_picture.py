"""The pictures of README.md: the terminal during a run, from the run's own journal, and the head of its report."""

from __future__ import annotations

import io
import shutil
import subprocess
from pathlib import Path

from rich.console import Console

from m3b.cli.live import LiveView
from m3b.cli.status_line import StatusLine
from m3b.events import ScriptOutput, ToolCalled
from m3b.journal import salvage_journal
from m3b.progress import PROGRESS_PATTERN

COLUMNS = 80
REPORT_SIZE = (1100, 1250)
"""Width and height of the picture of the report, in pixels."""
SVG_FORMAT = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, monospace; font-size: {char_height}px;
  line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-family: sans-serif; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g>
</g>
</svg>
"""
"""As rich draws a terminal, without the fonts that it would load from elsewhere."""


def draw_terminal(run: Path, command: str) -> str:
    """Return the terminal in the middle of a run's training as SVG, from its journal and the output of its script."""
    events = salvage_journal(run / "journal.jsonl").events
    training = max(
        (position for position, event in enumerate(events) if isinstance(event, ToolCalled)), default=len(events) - 1
    )
    log = sorted((run / "logs/jobs").glob("*.log"))[-1].read_text(encoding="utf-8").splitlines()
    progress_lines = [position for position, line in enumerate(log) if PROGRESS_PATTERN.search(line)]
    line_number = progress_lines[len(progress_lines) // 2]
    match = PROGRESS_PATTERN.search(log[line_number])
    assert match is not None
    now = events[training].at + float(match.group(1)) + 8.0

    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, highlight=False, emoji=False)
    console.print(f"$ {command}", markup=False)
    view = LiveView()
    view.console, view.is_interactive = console, True
    for event in events[: training + 1]:
        view(event)
    view(ScriptOutput(1, "\n".join(log[: line_number + 1]), at=now))
    console.print(StatusLine(console, view.progress).render(now + 1.0))
    svg = console.export_svg(title=command, code_format=SVG_FORMAT, unique_id="terminal")
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def draw_report(report: Path, target: Path, place: Path) -> bool:
    """Write the head of a report as PNG with Chromium; False if there is none on this machine.

    Args:
        place: the folder of the demo, whose name is left out of the paths on the page.
    """
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        return False
    page = report.with_name("report-for-picture.html")
    page.write_text(report.read_text(encoding="utf-8").replace(f"{place}/", ""), encoding="utf-8")
    width, height = REPORT_SIZE
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={width},{height}"]
    subprocess.run(
        [browser, *options, f"--screenshot={target}", page.absolute().as_uri()], check=True, capture_output=True
    )
    return target.is_file()
