"""`python -m tests.attacks`: all attacks against each backend, as this user and, where root asks, as an ordinary one;
prints attack by backend and user, and writes how many of each kind were stopped to FILE with `--summary FILE` as first arguments.
Ends with 1 where an attack was not stopped. Arguments go to pytest (`-k headers`).
`count` alone runs nothing and says how many tests there are against each backend; `cheats` runs the twelve cheats."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ATTACKS_FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(ATTACKS_FOLDER.parent))

from attacks import around, cheats  # noqa: E402
from attacks.table import BACKENDS, OPEN, Row, rows_of, summary_table, table  # noqa: E402
from m3b.isolation.untrusted import remove_tree  # noqa: E402

NOBODY = 65534
PROBE = "import pytest, numpy; from m3b.isolation.sandbox import choose_sandbox; choose_sandbox()"


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["count"]:
        print("\n".join(f"{number:5}  {name}" for name, number in count().items()))
        return 0
    if arguments[:1] == ["cheats"]:
        return cheats.main()
    summary_file = Path(arguments[1]) if arguments[:1] == ["--summary"] else None
    arguments = arguments[2:] if summary_file else arguments
    user = "root" if os.getuid() == 0 else "ordinary user"
    rows = [(user, row) for row in run([sys.executable], arguments)]
    if user == "root":
        with tempfile.TemporaryDirectory(prefix="m3b-attacks-") as place:
            python = ordinary(Path(place))
            if not python:
                print("As an ordinary user: not run; it takes setpriv, and a Python and packages that all can read.")
            rows += [("ordinary user", row) for row in (run(python, arguments) if python else ())]
    print(table(rows))
    if summary_file:
        summary_file.write_text(summary_table(rows), encoding="utf-8")
    return int(any(row.outcome == OPEN for _, row in rows))


@functools.lru_cache
def collect_nodes() -> tuple[str, ...]:
    """Return the ids of all tests that try attacks."""
    options = [
        "-p",
        "attacks.table",
        "-p",
        "no:cacheprovider",
        "-o",
        "addopts=",
        "-m",
        "not real",
        "--collect-only",
        "-q",
    ]
    env = {**os.environ, "PYTHONPATH": str(ATTACKS_FOLDER.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", *list_paths(), *options]
    completed = subprocess.run(
        command, env=env, cwd=ATTACKS_FOLDER.parents[1], capture_output=True, text=True, check=True
    )
    return tuple(line for line in completed.stdout.splitlines() if "::" in line)


def list_paths() -> list[str]:
    """Return the files and ids of tests for pytest: this folder, and the tests of attacks around the sandbox elsewhere."""
    tests = {test for attack in around.ATTACKS for test in attack.tests if not test.startswith(around.HERE)}
    return [str(ATTACKS_FOLDER), f"--ignore={ATTACKS_FOLDER / 'test_table.py'}", *sorted(tests)]


def count() -> dict[str, int]:
    """How many attack tests pytest collects, by backend; one test's script may try several ways out."""
    counts = {"all": 0, **dict.fromkeys(BACKENDS, 0), "m3b itself, whatever the backend": 0}
    for node in collect_nodes():
        (row,) = rows_of(node, "passed", "", "")
        counts["all"] += 1
        counts[row.backend or "m3b itself, whatever the backend"] += 1
    return counts


def ordinary(place: Path) -> list[str]:
    """The command that runs a Python with the same packages as an ordinary user; empty where there is none."""
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    place.chmod(0o755)
    pythons = [str(place / "bin/python"), sys.executable]
    if Path("/usr/bin/python3").exists() and shutil.which("setpriv"):
        subprocess.run(
            ["/usr/bin/python3", "-m", "venv", "--without-pip", str(place)], capture_output=True, check=False
        )
        for folder in place.glob("lib/*/site-packages"):
            packages = [path for path in sys.path if path.endswith("site-packages")]
            linked = all(same_packages(Path(path), folder) for path in packages)
            (folder / "same.pth").write_text(
                "\n".join([str(ATTACKS_FOLDER.parents[1] / "src"), *([] if linked else packages)])
            )
    for python in pythons:
        with contextlib.suppress(OSError):
            if not subprocess.run([*become, python, "-c", PROBE], capture_output=True).returncode:
                return [*become, python]
    return []


def same_packages(packages: Path, folder: Path) -> bool:
    """Whether the packages could be linked into a folder: a sandbox shows scripts those of the interpreter's own folders, and
    not where a .pth file leads, so that the scripts of whole runs would find no torch."""
    try:
        for entry in packages.iterdir():
            if entry.suffix == ".pth" or entry.name == "__pycache__" or (folder / entry.name).exists():
                continue
            if entry.is_dir():
                shutil.copytree(entry, folder / entry.name, copy_function=os.link, symlinks=True)
            else:
                os.link(entry, folder / entry.name)
    except OSError:  # another file system
        return False
    return True


@contextlib.contextmanager
def scratch() -> Iterator[str]:
    """A folder that is cleared whatever trees the attacks left in it."""
    place = tempfile.mkdtemp(prefix="m3b-attacks-")
    try:
        yield place
    finally:
        remove_tree(Path(place))


def run(python: list[str], arguments: list[str]) -> list[Row]:
    with scratch() as place:
        if len(python) > 1:
            os.chown(place, NOBODY, NOBODY)
        file = Path(place, "rows.json")
        options = [
            "-p",
            "attacks.table",
            f"--attacks={file}",
            "-p",
            "no:cacheprovider",
            f"--basetemp={place}/tests",
            "-m",
            "not real",
        ]
        home = {"HOME": place} if len(python) > 1 else {}
        env = {**os.environ, **home, "PYTHONPATH": str(ATTACKS_FOLDER.parent), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [*python, "-m", "pytest", *list_paths(), *options, *arguments]
        subprocess.run(command, env=env, cwd=ATTACKS_FOLDER.parents[1], stdout=sys.stderr, check=False)
        return [Row(*row) for row in json.loads(file.read_text())] if file.exists() else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
