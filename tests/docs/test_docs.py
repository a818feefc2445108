"""What README.md, docs/ and examples/ show is true of the program."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import refresh
from docs_kit import FENCE, GENERATED, PAGES, ROOT, Block, blocks
from hypothesis import given
from hypothesis import strategies as st
from typer.main import get_command
from typer.testing import CliRunner

import m3b
import m3b.data.synthetic
import m3b.tools
from m3b import Options, Pipeline
from m3b.cli.app import app
from m3b.data.cards import Card, parse_card
from m3b.data.index import example
from m3b.events import EVENT_KINDS, ArtifactAccepted, RunStarted
from m3b.llm import PROVIDERS, ask_llm
from m3b.llm.python_text import parse_with_retries
from m3b.loggers import LoggedRun
from m3b.loggers.recorder import RunRecorder
from m3b.loggers.registry import LOGGERS
from m3b.run.result import STATUSES, Result
from warm.commands import run_python

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PYTHON = list(blocks("python"))
CONSOLE = [
    (f"{block.location} {line}", line.removeprefix("$ "))
    for block in blocks("console")
    for line in block.text.splitlines()
    if line.startswith("$ ")
]
M3B = [(source, shlex.split(line, comments=True)[1:]) for source, line in CONSOLE if line.startswith("m3b ")]


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def param(items: list[Any]) -> list[Any]:
    """One test a block or line, called by its place."""
    return [pytest.param(item, id=item.location if isinstance(item, Block) else item[0]) for item in items]


def run_cli(words: list[str]) -> Any:
    return CliRunner().invoke(app, [os.path.expanduser(word) for word in words], prog_name="m3b")


# --- generated parts ---------------------------------------------------------------------------------------------


def test_the_help_texts_are_up_to_date() -> None:
    assert not refresh.stale(refresh.pages()), "run `python docs/refresh.py`"


def test_every_command_is_on_the_page() -> None:
    page_text = page("docs/cli.md")
    names = [" ".join(words) for words in refresh.commands() if words]
    assert {"demo", "run", "predict", "data list"} <= set(names)
    for name in names:
        assert f"$ m3b {name} --help\nUsage: m3b {name} " in page_text


def test_a_changed_help_text_is_noticed() -> None:
    text = page("docs/cli.md")
    changed = text.replace("--max-actions", "--most-actions")
    assert changed != text
    assert refresh.cli_page(changed) == text
    assert refresh.stale({ROOT / "docs" / "cli.md": changed}) == [ROOT / "docs" / "cli.md"]


@given(st.text(st.characters(exclude_characters="\r", exclude_categories=["Cs"])))
def test_put_replaces_its_part_only(content: str) -> None:
    text = (
        "before\n<!-- generated: a -->\nold\n<!-- /generated -->\nbetween\n<!-- generated: b -->\n<!-- /generated -->\n"
    )
    replaced = refresh.replace_block(text, "a", content)
    assert replaced == text.replace("old\n", f"```text\n{content.rstrip()}\n```\n")


@pytest.mark.parametrize("text", ["", "<!-- generated: a -->\n<!-- /generated -->\n" * 2])
def test_put_wants_exactly_one_part(text: str) -> None:
    with pytest.raises(ValueError, match="not one"):
        refresh.replace_block(text, "a", "new")


def test_the_transcript_is_of_a_completed_run() -> None:
    parts = dict(GENERATED.findall(page("README.md")))
    assert list(parts) == ["demo"]
    for words in (
        "$ m3b demo",
        "completed: ",
        "integrity: clean",
        "\n$ m3b predict demo/run/model",
    ):
        assert words in parts["demo"]
    assert "/tmp" not in parts["demo"]


def test_the_pictures_of_the_readme_are_there_and_load_nothing() -> None:
    text = page("README.md")
    assert "docs/terminal.svg" in text
    assert "docs/report.png" in text
    svg = page("docs/terminal.svg").replace("&#160;", " ")
    for words in ("m3b demo", "Task Manager (rules)", "loss ", "auroc ", " left", "so far"):
        assert words in svg
    assert re.findall(r"https?://[^\s\"']+", svg) == ["http://www.w3.org/2000/svg"]
    assert "/tmp" not in svg
    assert (ROOT / "docs/report.png").read_bytes().startswith(b"\x89PNG")
    assert (ROOT / "docs/report.png").stat().st_size < 500_000


def test_the_pictures_of_the_gallery_are_there_and_small() -> None:
    names = re.findall(r"!\[[^\]]+\]\(gallery/([\w-]+\.png)\)", page("docs/gallery.md"))
    files = sorted((ROOT / "docs/gallery").iterdir())
    assert sorted(names) == [file.name for file in files]
    assert {file.read_bytes()[:4] for file in files} == {b"\x89PNG"}
    assert sum(file.stat().st_size for file in files) < 1_000_000


@pytest.mark.slow
def test_the_gallery_is_drawn(tmp_path: Path) -> None:
    from gallery_pictures import CHEST, draw_gallery

    (tmp_path / "pictures").mkdir()
    files = draw_gallery(tmp_path, tmp_path / "pictures", [CHEST], minutes=0.05)
    assert "chest-overlay.png" in {file.name for file in files}
    assert all(file.stat().st_size > 1_000 for file in files)


def test_the_result_shown_has_the_fields_of_a_result() -> None:
    (fence,) = FENCE.findall(dict(GENERATED.findall(page("docs/python.md")))["result"])
    result = Result.from_json(json.loads(fence[1]))
    assert set(json.loads(fence[1])) == {field.name for field in dataclasses.fields(Result)} - {"acceptable"}
    assert result.ok
    assert result.primary
    assert result.to_json() == json.loads(fence[1])


# --- words and tables --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.name)
def test_links_lead_somewhere(file: Path) -> None:
    text = FENCE.sub("", file.read_text(encoding="utf-8"))
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    for link in (link for link in links if not link.startswith("https://")):
        path, _, anchor = link.partition("#")
        target = (file.parent / path).resolve() if path else file
        assert target.exists(), link
        if anchor:
            heads = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads], link


def test_every_page_is_in_the_index() -> None:
    index = page("docs/index.md")
    for file in PAGES[1:]:
        if file.name != "index.md":
            assert f"({file.name})" in index


def test_the_readme_is_short() -> None:
    assert len(page("README.md").splitlines()) < 150


def test_every_option_is_explained_with_its_default() -> None:
    page_text = page("docs/python.md")
    for field in dataclasses.fields(Options):
        row = next((line for line in page_text.splitlines() if line.startswith("|") and f"`{field.name}`" in line), "")
        default = json.dumps(field.default) if isinstance(field.default, str) else repr(field.default)
        assert row, field.name
        assert default in row.split("|")[2], field.name


def test_every_event_status_and_card_key_is_explained() -> None:
    for kind in EVENT_KINDS:
        assert f"`{kind}`" in page("docs/python.md"), kind
    for status in STATUSES:
        assert f"`{status}`" in page("README.md"), status
        if status != "completed":
            assert f"| `{status}` |" in page("docs/getting-started.md"), status
    for field in dataclasses.fields(Card):
        if field.name != "own":  # set by m3b, not by a card
            assert f"`{field.name}`" in page("docs/data.md"), field.name


def test_every_provider_and_variable_is_explained() -> None:
    for name, provider in PROVIDERS.items():
        (row,) = [line for line in page("docs/llm.md").splitlines() if line.startswith(f"| `{name}` |")]
        assert f"| {f'`{provider.default}`' if provider.default else 'the one that is served'} |" in row
        assert all(f"`{variable}`" in row for variable in provider.variables)
    source = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "src").rglob("*.py"))
    variables = set(re.findall(r"""["'](M3B_[A-Z_]+)["']""", source))
    assert "M3B_RUNS" in variables
    for name in variables:
        assert f"`{name}`" in page("docs/cli.md"), name


def test_the_changelog_knows_this_version() -> None:
    assert re.search(rf"^## {re.escape(m3b.__version__)}\b", page("CHANGELOG.md"), re.MULTILINE)


# --- JSON --------------------------------------------------------------------------------------------------------


def test_json_blocks_are_json(tmp_path: Path) -> None:
    values = {block.location: json.loads(block.text) for block in blocks("json")}
    assert example() in values.values()
    cards = [value for value in values.values() if isinstance(value, dict) and "description" in value]
    assert cards
    for raw in cards:
        card = parse_card(raw, base=tmp_path, own=True)
        assert card.path == tmp_path / raw["path"]
        assert card.acceptable == tuple(raw["acceptable"])
        assert set(raw) <= {field.name for field in dataclasses.fields(Card)}


# --- console -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", param(M3B))
def test_commands_are_understood_by_the_parser(line: tuple[str, list[str]]) -> None:
    words = list(line[1])
    command, name = get_command(app), "m3b"
    while words and words[0] in (inner := getattr(command, "commands", {})):
        name = words.pop(0)
        command = inner[name]
    assert not getattr(command, "commands", {}), f"no command: {words}"
    context = command.make_context(name, words)
    if context.params.get("llm"):
        assert context.params["llm"].partition(":")[0] in {"rules", "record", "replay", *PROVIDERS}


def test_other_commands_exist() -> None:
    project = tomllib.loads(page("pyproject.toml"))["project"]
    targets = re.findall(r"^([\w-]+):", page("Makefile"), re.MULTILINE)
    for source, line in CONSOLE:
        words = shlex.split(line, comments=True)
        if words[0] == "make":
            assert words[1] in targets, source
        elif words[:2] == ["pip", "install"]:
            extra = re.search(r"\[(\w+)\]$", words[-1])
            assert extra, source
            assert extra.group(1) in project["optional-dependencies"], source
        elif words[:2] == ["python", "-m"]:
            assert (ROOT / words[2].replace(".", "/") / "__main__.py").is_file(), source
        else:
            known_commands = (["git", "clone"], ["source", ".venv/bin/activate"], ["ray", "start"])
            assert words[0] in ("m3b", "export") or words[:2] in known_commands, source


def test_the_release_checklist_names_what_is_there() -> None:
    """Every `make` target and file of the page exists, and the three places of the version say the same."""
    text, makefile = page("docs/releasing.md"), page("Makefile")
    targets = {name for words in re.findall(r"make ((?:[a-z][\w-]* ?)+)", text) for name in words.split()}
    assert {"lock", "lint", "test", "test-slow", "test-real", "audit", "dist", "sbom", "docs"} <= targets
    phony = re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    assert phony
    assert targets <= set(phony[1].split())
    for name in re.findall(r"`([\w/.]+\.(?:md|toml|cff|txt|py))`", text):
        assert (ROOT / name).is_file(), name
    citation = re.search(r"^version: \"?([\w.]+)", page("CITATION.cff"), re.MULTILINE)
    assert citation
    assert citation[1] == m3b.__version__ == tomllib.loads(page("pyproject.toml"))["project"]["version"]


def test_a_wrong_option_is_noticed() -> None:
    with pytest.raises(Exception, match="--no-such-option"):
        get_command(app).commands["run"].make_context("run", ["request", "--no-such-option"])


def test_cheap_commands_run(elsewhere: Path) -> None:
    (elsewhere / "xrays").mkdir()
    (elsewhere / "xrays" / "README.md").write_text("Radiographs of chests.", encoding="utf-8")
    cheap = [words for _, words in M3B if words[:2] in (["data", "make"], ["data", "card"])]
    assert len({tuple(words[:3]) for words in cheap}) >= 3
    done = set()
    for words in cheap:
        if words[-1] in done or tuple(words[:4]) in done:
            continue
        done.add(tuple(words[:4]))
        arguments = [*words, "--cases", "12"] if words[1] == "make" else words
        result = run_cli(arguments)
        assert result.exit_code == 0, result.output
    assert parse_card(json.loads((elsewhere / "xrays.json").read_text()), base=elsewhere, own=True).path
    assert len(list((elsewhere / "balls").rglob("*.npy"))) == 12
    assert (elsewhere / "chest-xrays" / "cases.csv").is_file()


def test_the_list_of_cards_is_as_said() -> None:
    cards = json.loads(run_cli(["data", "list", "--json"]).stdout)["cards"]
    assert len(cards) > 40
    assert not any(card["path"] for card in cards)  # "their data is not included"


# --- Python ------------------------------------------------------------------------------------------------------


def code(block: Block, minutes: float = 0.05) -> Any:
    """A block, compiled so that errors name its place; training is cut short."""
    text = re.sub(r"train_minutes=\d+", f"train_minutes={minutes}", block.text)
    return compile("\n" * block.line + text, str(block.page), "exec")


@pytest.mark.parametrize("block", param(PYTHON))
def test_python_blocks_name_what_is_there(block: Block) -> None:
    parameters = set(Options.__dataclass_fields__) | set(Pipeline.__init__.__annotations__)
    for node in ast.walk(parse_with_retries(ast.parse, block.text)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("m3b"):
            module = importlib.import_module(node.module)
            for name in node.names:
                assert hasattr(module, name.name), f"{block.location}: {node.module}.{name.name}"
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Pipeline":
            assert {keyword.arg for keyword in node.keywords} <= parameters, block.location


@pytest.mark.parametrize(
    "block", param([block for block in PYTHON if block.page.name in ("python.md", "extending.md")])
)
def test_python_blocks_stand_alone_or_say_which_block_they_continue(block: Block) -> None:
    if not block.text.startswith("# continues "):
        assert list_undefined_names(block.text) == [], block.location


def list_undefined_names(code_text: str) -> list[str]:
    """Return the names that a text uses and neither imports nor defines anywhere."""
    defined, used = set(dir(builtins)), set()
    for node in ast.walk(ast.parse(code_text)):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                used.add(name)
            case ast.Name(id=name) | ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                defined.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                defined |= {(alias.asname or alias.name).split(".")[0] for alias in aliases}
            case ast.ExceptHandler(name=str(name)):
                defined.add(name)
    return sorted(used - defined)


@pytest.mark.parametrize("name", ["llm.md", "metrics.md"])
def test_blocks_without_training_run(name: str, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(variable, "none")
    scope: dict[str, Any] = {"my_function": lambda messages, tools: "", "Pipeline": Pipeline}
    page_blocks = [block for block in PYTHON if block.page.name == name]
    assert page_blocks
    for block in page_blocks:
        exec(code(block), scope)
    if name == "llm.md":
        assert scope["mine"]([], [])["calls"][0]["name"] in m3b.tools.TOOLS
        scope["generate"] = lambda messages, tools: ["one ", "two"]
        pieces: list[str] = []
        assert ask_llm(scope["MyModel"](), [], on_text=pieces.append).text == "one two" == "".join(pieces)
    else:
        assert scope["scores"].primary.name == "auroc"


def test_the_logger_that_is_shown_works(elsewhere: Path) -> None:
    scope: dict[str, Any] = {}
    exec(code(next(block for block in PYTHON if block.page.name == "loggers.md")), scope)
    run = LoggedRun("run-1", elsewhere, elsewhere / "loggers" / "json")
    recorder = RunRecorder(scope["JsonLogger"](run), run, {})
    recorder.record_event(RunStarted("", "run-1", {"name": "off", "level": "off"}))
    validation = {"name": "auroc", "value": 0.75, "low": 0.5, "high": None}
    recorder.record_event(ArtifactAccepted("model", {"validation": validation}, at=5.0))
    recorder.close()
    assert recorder.key == "run-1"
    lines = [json.loads(line) for line in (run.store / "log.jsonl").read_text().splitlines()]
    assert lines == [
        {"tags": {"run": "run-1", "sandbox": "off"}},
        {"figures": {"validation/auroc": 0.75, "validation/auroc_low": 0.5}, "step": 1, "at": 5.0},
    ]


def test_every_logger_is_on_its_page() -> None:
    text = page("docs/loggers.md")
    for name, kind in LOGGERS.items():
        (row,) = [line for line in text.splitlines() if line.startswith(f"| `{name}` |")]
        assert f"`{kind.install}`" in row
        assert all(f"`{variable}" in text for variable in (*kind.remote_variables, *kind.silencers))


def test_what_is_shown_of_extending_works(elsewhere: Path) -> None:
    """In a process of its own: what is registered there stays registered."""
    project = elsewhere / "my-templates" / "my-unet"
    project.mkdir(parents=True)
    for name in ("README.md", "plan.py", "train.py", "export.py"):
        (project / name).write_text("# mine\n")
    (project / "template.json").write_text('{"task": "segmentation"}')
    (elsewhere / "my-prompts").mkdir()
    (elsewhere / "my-prompts" / "common.md").write_text("Answer briefly.\n")
    m3b.data.synthetic.make_chest(elsewhere / "chest-xrays", patients=10)
    text = "\n".join(block.text for block in PYTHON if block.page.name == "extending.md")
    text += "\nfrom m3b.metrics import canonical_metric\nprint(canonical_metric('Youden', 'diagnosis'))"
    text += "\ntest_youden()"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "examples" / "landmarks")}
    ran = run_python("-c", text, env=environment, check=True, server="m3b")
    assert ran.stdout.splitlines() == ["['landmarks', 'my-unet']", "youden"]
    (metric,) = [block for block in PYTHON if block.page.name == "extending.md" and "YOUDEN = Metric" in block.text]
    assert len(metric.text.splitlines()) <= 40, "a new metric is a short file"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["README.md", "python.md"])
def test_blocks_with_training_run(name: str, elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if name == "python.md":
        m3b.data.synthetic.make_chest(elsewhere / "chest-xrays", patients=80)
    scope: dict[str, Any] = {}
    for block in PYTHON:
        if block.page.name == name:
            exec(code(block), scope)
    printed = capsys.readouterr().out
    assert scope["result"].model_dir
    assert scope["result"].integrity == "clean"
    assert "clear_1.png" in printed
    if name == "python.md":
        assert "model_trainer run_script" in printed
        assert scope["event"].kind == "run_ended"
        assert scope["event"].data["status"] in ("completed", "below_range")
        assert scope["call"].__name__
        assert scope["schema"]["parameters"]["required"] == ["request"]


@pytest.mark.slow
def test_getting_started_can_be_followed(elsewhere: Path) -> None:
    outputs = {}
    for source, words in M3B:
        if source.startswith("getting-started.md") and words != ["doctor"]:
            short = ["0.05" if words[at - 1] == "--train-minutes" else word for at, word in enumerate(words)]
            ran = run_cli(short)
            outputs[words[0]] = ran.output
            # so little training may leave the model below its range, which is no error of the page
            assert ran.exit_code == 0 or (words[0] == "run" and "below_range" in ran.output), ran.output
    assert set(outputs) == {"data", "run", "show", "predict", "score"}
    assert outputs["predict"].count("chest-xrays/unseen/") == 4
    assert outputs["score"].startswith("auroc ")
    folder_listing = next(block.text for block in blocks("text") if block.text.startswith("first/"))
    for name in re.findall(
        r"[\w-]+(?:\.\w+|/)", re.sub(r"  [a-z;:,].*|: .*|IMAGE.*|python .*|the .*", "", folder_listing)
    ):
        matches = [name == "first/", *(elsewhere / "first").rglob(name.rstrip("/"))]
        assert any(matches), name


# --- examples ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_examples_start(file: Path, elsewhere: Path) -> None:
    ran = run_python(file, "--help", check=True, server="m3b")
    assert "--minutes" in ran.stdout


@pytest.mark.slow
@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_examples_run(file: Path, elsewhere: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(file), "--minutes", "0.05", "--folder", "x"], capture_output=True, text=True, timeout=600
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"^(completed|below_range): ", ran.stdout, re.MULTILINE)
    assert (elsewhere / "x" / "run" / "model" / "predict.py").is_file()
    if file.stem == "own_model":
        match = re.search(r"(\d+) requests, ([\d,]+) characters sent; (\d+) actions", ran.stdout)
        assert match
        assert int(match.group(1)) > int(match.group(3)) > 2
