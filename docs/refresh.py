"""Make the generated parts of the documentation anew.

`python docs/refresh.py` writes what is cheap: the help texts in docs/cli.md and the picture of docs/architecture.md.
`--check` writes nothing and ends with 1 if they are out of date. `--demo` also makes a whole run in a temporary folder
(some minutes) and writes its transcript into README.md, its result into docs/python.md, the picture of the terminal
(docs/terminal.svg) and, if there is a Chromium, that of the report (docs/report.png).

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
CUT = 110


def put(text: str, name: str, content: str, language: str = "text") -> str:
    """`text` with the content of its generated part `name` replaced by one fenced block.

    Raises:
        ValueError: the text has no such part, or two.
    """
    fence = f"```{language}\n{content.rstrip()}\n```\n"
    pattern = re.compile(rf"(<!-- generated: {re.escape(name)} -->\n).*?(<!-- /generated -->)", re.DOTALL)
    made, count = pattern.subn(lambda found: found.group(1) + fence + found.group(2), text)
    if count != 1:
        raise ValueError(f"there are {count} generated parts called {name}, not one")
    return made


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

    shown = CliRunner().invoke(
        app, [*words, "--help"], prog_name="m3b", env={"COLUMNS": str(WIDTH), "TERMINAL_WIDTH": str(WIDTH)}
    )
    if shown.exit_code != 0:
        raise RuntimeError(f"m3b {' '.join(words)} --help ends with {shown.exit_code}: {shown.output}")
    return "\n".join(line.rstrip() for line in shown.output.strip().splitlines())


def cli_page(text: str) -> str:
    """docs/cli.md with the present help texts."""
    blocks = [f"$ m3b {' '.join((*words, '--help'))}\n{help_text(words)}" for words in commands()]
    return put(text, "help", "\n\n".join(blocks))


# --- the picture ------------------------------------------------------------------------------------------------


def picture() -> str:
    """docs/architecture.svg as the code has it now."""
    sys.path.insert(0, str(DOCS))
    from picture import draw

    return draw()


# --- a whole run -------------------------------------------------------------------------------------------------


def demo() -> tuple[str, str]:
    """The transcript of `m3b demo` and the Result of its run, with the temporary folder's name taken out."""
    with tempfile.TemporaryDirectory(prefix="m3b-docs-") as folder:
        place = Path(folder).resolve()
        ran = subprocess.run(
            [sys.executable, "-m", "m3b", "demo"],
            cwd=place,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if ran.returncode != 0:
            raise RuntimeError(f"the demo ended with {ran.returncode}:\n{ran.stdout}")
        record = json.loads((place / "demo" / "run" / "run.json").read_text(encoding="utf-8"))
        plain = f"$ m3b demo\n{ran.stdout}".replace(f"{place}/", "")
        result = json.dumps(record["result"], indent=1, ensure_ascii=False).replace(f"{place}/", "")
        draw_pictures(place / "demo" / "run")
    lines = [line if len(line) <= CUT else f"{line[: CUT - 3]}..." for line in plain.splitlines()]
    return "\n".join(line.rstrip() for line in lines), result


def draw_pictures(run: Path) -> None:
    """Write the pictures of the terminal and of the report of a run."""
    sys.path.insert(0, str(DOCS))
    from terminal_picture import draw_report, draw_terminal

    (DOCS / "terminal.svg").write_text(draw_terminal(run, "m3b demo"), encoding="utf-8")
    if not draw_report(run / "report.html", DOCS / "report.png"):
        print("docs/report.png is as it was: there is no Chromium here")


def pages(*, with_demo: bool = False) -> dict[Path, str]:
    """Every generated file with what it should hold."""
    cli = DOCS / "cli.md"
    made = {cli: cli_page(cli.read_text(encoding="utf-8")), DOCS / "architecture.svg": picture()}
    if with_demo:
        transcript, result = demo()
        readme, api = ROOT / "README.md", DOCS / "python.md"
        made[readme] = put(readme.read_text(encoding="utf-8"), "demo", transcript, "console")
        made[api] = put(api.read_text(encoding="utf-8"), "result", result, "json")
    return made


def stale(made: dict[Path, str]) -> list[Path]:
    """Those files that hold something else."""
    return [path for path, text in made.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the generated parts of the documentation anew.")
    parser.add_argument("--check", action="store_true", help="write nothing; end with 1 if anything is out of date")
    parser.add_argument("--demo", action="store_true", help="make the run that README.md shows, too")
    asked = parser.parse_args()
    made = pages(with_demo=asked.demo and not asked.check)
    old = stale(made)
    for path in old:
        print(f"{'out of date' if asked.check else 'written'}: {path.relative_to(ROOT)}")
        if not asked.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(made[path], encoding="utf-8")
    return 1 if asked.check and old else 0


if __name__ == "__main__":
    sys.exit(main())
