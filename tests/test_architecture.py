"""The shape of the code: what may import what, which words live where, how errors are caught."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from m3b.llm.python_text import parse_with_retries
from m3b.plugins import BUILTIN_TASKS

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "m3b"


ROLE_WORDS = re.compile(r"task[_ ]manager|data[_ ]engineer|module[_ ]architect|model[_ ]trainer", re.IGNORECASE)
HEAVY = ("torch", "monai", "transformers", "numpy", "anthropic", "openai", "httpx", "nibabel", "SimpleITK", "PIL")
LAZY = ("torch", "monai", "transformers", "nnunetv2", "ray", "mcp", "trl", "peft", "datasets")

FILES = sorted(SRC.rglob("*.py"))
TEMPLATES = sorted((ROOT / "resources").rglob("*.py"))
"""What runs in the sandbox, as agents copy it: held to the same sizes."""
TRAINED = [*TEMPLATES, *sorted((SRC / "training").rglob("*.py"))]
"""Code of training projects: their own files, and the library that they import."""


@cache
def tree(file: Path) -> ast.Module:
    return parse_with_retries(ast.parse, file.read_text(encoding="utf-8"))


def part(file: Path) -> str:
    """The package, or the module of `m3b.run`: its rooms stand around the report, which reads some and is written by others."""
    name = ".".join(file.relative_to(SRC).with_suffix("").parts)
    return name if name.startswith("run.") else name.split(".")[0]


def part_of(name: str) -> str:
    """The part that an import's dotted name belongs to, or nothing where it is none of ours."""
    parts = name.split(".")
    if parts[0] != "m3b" or len(parts) < 2:
        return ""
    is_part = (SRC / parts[1]).is_dir() or (SRC / f"{parts[1]}.py").is_file()
    return ".".join(parts[1:3]) if parts[1] == "run" else parts[1] if is_part else "__init__"


def imports(file: Path) -> Iterator[tuple[ast.stmt, str]]:
    """Every import of a file with the full dotted name of what it takes, relative ones resolved."""
    package = ["m3b", *file.relative_to(SRC).parts[:-1]]
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield node, f"{module}.{alias.name}"


def type_only(file: Path) -> set[int]:
    """Lines below `if TYPE_CHECKING:`, which never run."""
    lines: set[int] = set()
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            lines |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def functions(files: Sequence[Path] = FILES) -> Iterator[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for file in files:
        for node in ast.walk(tree(file)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield file, node


# --- imports -----------------------------------------------------------------------------------------------------


def test_no_import_cycle_between_parts() -> None:
    graph: dict[str, set[str]] = {}
    for file in FILES:
        skip = type_only(file)
        for node, name in imports(file):
            imported_part = part_of(name)
            if imported_part not in ("", "__init__") and node.lineno not in skip:
                graph.setdefault(part(file), set()).add(imported_part)
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, f"cycle: {' -> '.join((*path, name))}"
        if name in done:
            return
        for neighbour in sorted(graph.get(name, set()) - {name}):
            visit(neighbour, (*path, name))
        done.add(name)

    for name in graph:
        visit(name, ())


def test_no_import_cycle_between_modules() -> None:
    """Also inside a package, and of imports inside functions."""
    modules = {
        ".".join(("m3b", *file.relative_to(SRC).with_suffix("").parts)).removesuffix(".__init__") for file in FILES
    }
    graph: dict[str, set[str]] = {}
    for file in FILES:
        module = ".".join(("m3b", *file.relative_to(SRC).with_suffix("").parts)).removesuffix(".__init__")
        skip = type_only(file)
        imported_names = {name for node, name in imports(file) if node.lineno not in skip}
        graph[module] = {name if name in modules else name.rpartition(".")[0] for name in imported_names} & modules - {
            module
        }
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"cycle: {' -> '.join(error.args[1])}")


def test_training_packages_are_imported_where_they_are_used() -> None:
    """Never at the top of a module: `import m3b` and everything but training work without them."""
    wrong = []
    for file in FILES:
        for node in tree(file).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            if part(file) != "training" and file != SRC / "serve/mcp_server.py":  # m3b mcp alone imports it
                wrong += [f"{file.relative_to(SRC)}: {name}" for name in names if name.split(".")[0] in LAZY]
    assert not wrong


@pytest.mark.parametrize("command", ["import m3b", "from m3b import Pipeline", "from m3b.cli import main; main()"])
def test_nothing_heavy_is_imported_at_the_start(command: str) -> None:
    code = (
        "import json, sys\nsys.argv = ['m3b', '--help']\n"
        f"try:\n    {command}\nexcept SystemExit as end:\n    assert end.code in (0, None), end.code\n"
        f"print('\\n' + json.dumps([n for n in {HEAVY!r} if n in sys.modules]))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=900, check=False)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout.splitlines()[-1]) == []


def test_help_imports_the_command_line_alone() -> None:
    code = (
        "import contextlib, sys\nsys.argv = ['m3b', '--help']\nfrom m3b.cli import main\n"
        "with contextlib.suppress(SystemExit):\n    main()\n"
        "print('\\n' + ' '.join(n for n in sys.modules if n.startswith('m3b.')))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=900, check=False)
    imported_names = {name for name in ran.stdout.splitlines()[-1].split() if not name.startswith("m3b.cli")}
    assert imported_names == {"m3b.bench", "m3b.bench.datasets", "m3b.bench.datasets.registry", "m3b.errors"}, (
        ran.stderr
    )


def test_a_pipeline_is_imported_without_what_only_a_run_needs() -> None:
    """`benchmarks/startup.py` measures what that saves."""
    needed_later = [
        "m3b.agents",
        "m3b.tools",
        "m3b.metrics",
        "m3b.llm.rules",
        "m3b.report",
        "importlib.metadata",
        "ssl",
    ]
    code = f"import sys; from m3b import Pipeline; print([n for n in {needed_later!r} if n in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=900, check=False)
    assert ran.stdout.strip() == "[]", ran.stdout + ran.stderr


PARSERS = (
    "nibabel",
    "pydicom",
    "SimpleITK",
    "PIL",
    "h5py",
    "openpyxl",
    "fastexcel",
    "scipy.io",
    "pickle",
    "tarfile",
    "zipfile",
)
MAY_PARSE = (
    "data/", "dataset/", "tools/previews/", "tools/preview_files.py",  # asked by the reader process
    "models/overlay.py", "models/example_images.py", "models/image_jobs.py",  # of `m3b predict`
    "models/case_pictures.py",  # of reports, asked by the reader process
    "models/case_layers.py",  # of `m3b view`, asked by the reader process
    "models/montage.py",  # of `view_image`, asked by the reader process
    "models/deliverable_check.py",  # of a model's folder
    "models/pretrained/install.py",  # of wheels, whose digests are known
    "serve/zip_contents.py",  # of `m3b serve`, asked by the reader process
    "models/label_maps.py",  # of `m3b serve`, asked by the reader process
    "models/dicom/",  # of `m3b predict --dicom`, asked by the reader process
    "serve/dicom_transfer.py",  # objects that the reader wrote, to store them; answers in JSON
    "training/",  # of projects and delivered models, in the sandbox
    "bench/", "interactive/", "teaching/", "models/array_files.py", "models/inside/image_axes.py",
)  # fmt: skip
"""Where files of others are opened. `tests/reader/test_whole_run.py` holds that a run's own process loads none of these."""


def test_parsers_of_foreign_formats_are_imported_in_few_places() -> None:
    wrong = [
        f"{file.relative_to(SRC)}:{node.lineno} imports {name}"
        for file in FILES
        for node, name in imports(file)
        if name.startswith(tuple(f"{parser}." for parser in PARSERS) + PARSERS)
        and not file.relative_to(SRC).as_posix().startswith(MAY_PARSE)
        and node.lineno not in type_only(file)
    ]
    assert not wrong, "\n".join(wrong)


# --- words -------------------------------------------------------------------------------------------------------


def test_provider_packages_are_used_in_llm_only() -> None:
    used: dict[str, set[str]] = {}
    for file in FILES:
        for _, name in imports(file):
            if name.split(".")[0] in ("anthropic", "openai", "httpx"):
                used.setdefault(part(file), set()).add(file.name)
    assert set(used) == {"llm"}, used


def test_provider_names_occur_in_llm_only() -> None:
    wrong = []
    for file in FILES:
        if part(file) in ("llm", "testing") or file.is_relative_to(SRC / "bench" / "relay"):
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if re.search(r"anthropic|openai", line, re.IGNORECASE):
                wrong.append(f"{file.relative_to(SRC)}:{number}: {line.strip()}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", ["llm", "tools", "sandbox"])
def test_lower_floors_know_no_roles(name: str) -> None:
    wrong = []
    for file in FILES:
        if part(file) == name:
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                if ROLE_WORDS.search(line):
                    wrong.append(f"{file.relative_to(SRC)}:{number}: {line.strip()}")
    assert not wrong, "\n".join(wrong)


def test_nothing_is_left_to_be_done() -> None:
    texts = [*FILES, *(ROOT / "resources").rglob("*.py"), *(ROOT / "resources").rglob("*.md")]
    wrong = [
        f"{file.relative_to(ROOT)}:{number}"
        for file in texts
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(r"\b(TODO|FIXME|XXX|HACK)\b|raise NotImplementedError", line)
    ]
    assert not wrong


# --- forms -------------------------------------------------------------------------------------------------------


def test_every_function_is_annotated() -> None:
    unannotated = []
    for file, node in functions():
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        parameters = [parameter for parameter in arguments if parameter.arg not in ("self", "cls")]
        if node.returns is None or any(parameter.annotation is None for parameter in parameters):
            unannotated.append(f"{file.relative_to(SRC)}:{node.lineno} {node.name}")
    assert not unannotated


def test_public_things_say_what_they_are() -> None:
    """Modules and public classes have a docstring."""
    silent = [str(file.relative_to(SRC)) for file in FILES if not ast.get_docstring(tree(file))]
    for file in FILES:
        for node in tree(file).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and not ast.get_docstring(node):
                silent.append(f"{file.relative_to(SRC)}: {node.name}")
    assert not silent


# --- errors ------------------------------------------------------------------------------------------------------


def broad_excepts(files: Sequence[Path] = FILES, root: Path = SRC, *, ending: bool = False) -> dict[str, int]:
    """`except Exception`, `except BaseException` and bare ones, by file; `ending` for those that raise nothing as they
    end."""
    counts: dict[str, int] = {}
    for file in files:
        for node in ast.walk(tree(file)):
            if not isinstance(node, ast.ExceptHandler):
                continue
            names = (
                {name_node.id for name_node in ast.walk(node.type) if isinstance(name_node, ast.Name)}
                if node.type
                else set()
            )
            last = node.body[-1]
            passes_on = isinstance(last, ast.Raise) and (last.exc is None or last.cause is not None)
            if (node.type is None or names & {"Exception", "BaseException"}) and not (ending and passes_on):
                name = file.relative_to(root).as_posix()
                counts[name] = counts.get(name, 0) + 1
    return counts


def test_broad_excepts_stand_at_boundaries_only() -> None:
    """Where foreign code runs: a provider's SDK, an agent's project, a user's function, the package of a logger, a reader of
    somebody else's format; where a thread hands over what ended it; and where a server answers whatever a request did."""
    allowed = (
        "agents/checks/probe.py",
        "models/inside/",
        "llm/",
        "loggers/relay.py",
        "testing/conformance/",
        "tools/preview",
        "data/opening.py",
        "dataset/formats/base.py",
        "dataset/annotations/documents.py",
        "dataset/proposals/decide.py",
        "isolation/sandbox/guard/",
        "isolation/reader/server.py",
        "bench/cell.py",
        "training/",
        "run/extensions.py",
        "run/handle.py",
        "run/orchestrator.py",
        "serve/predict_app.py",
    )
    counts = broad_excepts()
    assert [name for name in counts if not name.startswith(allowed)] == []
    assert sum(broad_excepts(ending=True).values()) <= 14


@pytest.mark.parametrize(("files", "root"), [(FILES, SRC), (TRAINED, ROOT)], ids=["src", "training"])
def test_broad_excepts_are_rare(files: list[Path], root: Path) -> None:
    """At most 0.3 in 1,000 lines; each says on its line why it is there."""
    counts = broad_excepts(files, root)
    assert sum(counts.values()) <= 0.3e-3 * sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files), (
        counts
    )
    for name, count in counts.items():
        lines = (root / name).read_text(encoding="utf-8").splitlines()
        explained_lines = [
            line for line in lines if re.search(r"except (BaseException|Exception)\b.*# \w+ \w+|BLE001 - \w+ \w+", line)
        ]
        assert len(explained_lines) >= count, name


def test_broad_excepts_say_why() -> None:
    silent = []
    for file in FILES:
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if "noqa" in line and not re.search(r"noqa: [A-Z]+\d+( -|$)", line):
                silent.append(f"{file.name}:{number}")
            if "noqa: BLE001" in line and not re.search(r"noqa: BLE001 - \w+ \w+", line):
                silent.append(f"{file.name}:{number}")
    assert not silent


def test_no_name_of_a_package_is_that_of_a_module_in_it() -> None:
    """Importing the module later would put it in the place of the function that the package has under that name."""
    clashes = []
    for file in (file for file in FILES if file.name == "__init__.py"):
        module_names = {
            sibling.stem for sibling in file.parent.iterdir() if sibling.suffix == ".py" or sibling.is_dir()
        }
        modules = ("__future__", ".".join(("m3b", *file.parent.relative_to(SRC).parts)))
        for node in ast.walk(tree(file)):
            if isinstance(node, ast.ImportFrom) and node.module and node.module not in modules:
                names = {alias.asname or alias.name for alias in node.names} & module_names
                clashes += [
                    f"{file.relative_to(SRC)}: {name}" for name in names if node.module.rpartition(".")[2] != name
                ]
    assert clashes == []


def test_no_code_outside_the_tasks_compares_the_name_of_one() -> None:
    """A family from outside has the same rights; `m3b.data` still has the records of the built-in tasks, and each has its training."""
    for file in FILES:
        if part(file) in ("tasks", "data", "training"):
            continue
        for node in ast.walk(tree(file)):
            if isinstance(node, ast.Compare):
                sides = [node.left, *node.comparators]
                words = {leaf.value for side in sides for leaf in ast.walk(side) if isinstance(leaf, ast.Constant)}
                names = {ast.unparse(side).rpartition(".")[2] for side in sides}
                assert not (names & {"task", "task_name"} and words & set(BUILTIN_TASKS)), f"{file}:{node.lineno}"
