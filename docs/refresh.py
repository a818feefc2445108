"""Make the generated parts of the documentation anew.

`python docs/refresh.py` writes what is cheap: the help texts in docs/cli.md, the tables of docs/templates.md and the picture of
docs/architecture.md.
`--check` writes nothing and ends with 1 if they are out of date. `--demo` also makes a whole run in a temporary folder
(some minutes) and writes its transcript into README.md, its result into docs/python.md, the picture of the terminal
(docs/terminal.svg) and, if there is a Chromium, that of the report (docs/report.png). `--gallery` makes two runs and the pictures
of docs/gallery.md.

Generated parts stand between `<!-- generated: NAME -->` and `<!-- /generated -->`.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
WIDTH = 80
STAGE_LINE = re.compile(r" ?\d+:\d\d ")
"""A line of the live view in the transcript of a run."""
CUT = 110


def replace_block(text: str, name: str, content: str, language: str = "text") -> str:
    """`text` with the content of its generated part `name` replaced by one fenced block, or as it is without a language.

    Raises:
        ValueError: the text has no such part, or two.
    """
    fence = f"```{language}\n{content.rstrip()}\n```\n" if language else content
    pattern = re.compile(rf"(<!-- generated: {re.escape(name)} -->\n).*?(<!-- /generated -->)", re.DOTALL)
    replaced, count = pattern.subn(lambda match: match.group(1) + fence + match.group(2), text)
    if count != 1:
        raise ValueError(f"there are {count} generated parts called {name}, not one")
    return replaced


# --- the command line --------------------------------------------------------------------------------------------


def commands() -> Iterator[tuple[str, ...]]:
    """Every command as its words, in the order of the help texts; the first is `m3b` itself."""
    from typer.main import get_command

    from m3b.cli.app import app

    def walk(command: object, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield words
        for name, inner in getattr(command, "commands", {}).items():
            yield from walk(inner, (*words, name))

    yield from walk(get_command(app), ())


def help_text(words: tuple[str, ...]) -> str:
    """What `m3b WORDS --help` prints on a terminal of 80 columns."""
    from typer.testing import CliRunner

    from m3b.cli.app import app

    outcome = CliRunner().invoke(
        app, [*words, "--help"], prog_name="m3b", env={"COLUMNS": str(WIDTH), "TERMINAL_WIDTH": str(WIDTH)}
    )
    if outcome.exit_code != 0:
        raise RuntimeError(f"m3b {' '.join(words)} --help ends with {outcome.exit_code}: {outcome.output}")
    return "\n".join(line.rstrip() for line in outcome.output.strip().splitlines())


def cli_page(text: str) -> str:
    """docs/cli.md with the present help texts."""
    blocks = [f"$ m3b {' '.join((*words, '--help'))}\n{help_text(words)}" for words in commands()]
    return replace_block(text, "help", "\n\n".join(blocks))


# --- the picture ------------------------------------------------------------------------------------------------


def picture() -> str:
    """docs/architecture.svg as the code has it now."""
    sys.path.insert(0, str(DOCS))
    from picture import draw

    return draw()


# --- the tables of settings ---------------------------------------------------------------------------------------


def settings_tables() -> str:
    """The tables by which plans are made, in Markdown."""
    from m3b.training.plan_table import PLAN_TABLES

    lines = []
    for task, rows in PLAN_TABLES.items():
        lines += ["", f"**{task}**", "", "| if | settings | evidence |", "|---|---|---|"]
        for row in rows:
            settings = ", ".join(f"{key} {json.dumps(value)}" for key, value in row.settings.items()).replace('"', "")
            evidence = re.sub(r"RESULTS\.md#([\w-]+)", r"[\1](../benchmarks/RESULTS.md#\1)", row.evidence)
            lines.append(f"| {row.conditions or 'always'} | {settings} | {evidence} |")
    return "\n".join([*lines, "", ""])


# --- a whole run -------------------------------------------------------------------------------------------------


def demo() -> tuple[str, str]:
    """The transcript of `m3b demo` and the Result of its run, with the temporary folder's name taken out."""
    with tempfile.TemporaryDirectory(prefix="m3b-docs-") as folder:
        place = Path(folder).resolve()
        process = subprocess.run(
            [sys.executable, "-m", "m3b", "demo"],
            cwd=place,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if process.returncode != 0:
            raise RuntimeError(f"the demo ended with {process.returncode}:\n{process.stdout}")
        record = json.loads((place / "demo" / "run" / "run.json").read_text(encoding="utf-8"))
        transcript_text = f"$ m3b demo\n{process.stdout}".replace(f"{place}/", "")
        result = json.dumps(record["result"], indent=1, ensure_ascii=False).replace(f"{place}/", "")
        draw_pictures(place)
    lines = [line if len(line) <= CUT else f"{line[: CUT - 3]}..." for line in transcript_text.splitlines()]
    stage_lines = [position for position, line in enumerate(lines) if STAGE_LINE.match(line)]
    if stage_lines:  # docs/terminal.svg shows them
        lines[stage_lines[0] : stage_lines[-1] + 1] = ["..."]
    return "\n".join(line.rstrip() for line in lines), result


def draw_pictures(place: Path) -> None:
    """Write the pictures of the terminal and of the report of the demo in a folder."""
    run = place / "demo" / "run"
    sys.path.insert(0, str(DOCS))
    from terminal_picture import draw_report, draw_terminal

    (DOCS / "terminal.svg").write_text(draw_terminal(run, "m3b demo"), encoding="utf-8")
    if not draw_report(run / "report.html", DOCS / "report.png", place):
        print("docs/report.png is as it was: there is no Chromium here")


def draw_gallery_pictures() -> None:
    """Write the pictures of docs/gallery.md, from runs in a temporary folder."""
    sys.path.insert(0, str(DOCS))
    from gallery_pictures import draw_gallery

    with tempfile.TemporaryDirectory(prefix="m3b-docs-") as folder:
        draw_gallery(Path(folder).resolve(), DOCS / "gallery")


def pages(*, with_demo: bool = False) -> dict[Path, str]:
    """Every generated file with what it should hold."""
    cli = DOCS / "cli.md"
    templates = DOCS / "templates.md"
    tables = replace_block(templates.read_text(encoding="utf-8"), "settings", settings_tables(), "")
    texts = {cli: cli_page(cli.read_text(encoding="utf-8")), DOCS / "architecture.svg": picture(), templates: tables}
    if with_demo:
        transcript, result = demo()
        readme, api = ROOT / "README.md", DOCS / "python.md"
        texts[readme] = replace_block(readme.read_text(encoding="utf-8"), "demo", transcript, "console")
        texts[api] = replace_block(api.read_text(encoding="utf-8"), "result", result, "json")
    return texts


def stale(texts: dict[Path, str]) -> list[Path]:
    """Those files that hold something else."""
    return [path for path, text in texts.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the generated parts of the documentation anew.")
    parser.add_argument("--check", action="store_true", help="write nothing; end with 1 if anything is out of date")
    parser.add_argument("--demo", action="store_true", help="make the run that README.md shows, too")
    parser.add_argument("--gallery", action="store_true", help="make the runs and pictures of docs/gallery.md, too")
    arguments = parser.parse_args()
    if arguments.gallery and not arguments.check:
        draw_gallery_pictures()
    texts = pages(with_demo=arguments.demo and not arguments.check)
    outdated = stale(texts)
    for path in outdated:
        print(f"{'out of date' if arguments.check else 'written'}: {path.relative_to(ROOT)}")
        if not arguments.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(texts[path], encoding="utf-8")
    return 1 if arguments.check and outdated else 0


if __name__ == "__main__":
    sys.exit(main())
