"""`python -m tests.attacks`: all attacks against each backend, as this user and, where root asks, as an ordinary one;
prints attack by backend and user. Ends with 1 where an attack was not stopped. Arguments go to pytest (`-k headers`).
`count` alone runs nothing and says how many tests there are against each backend; `cheats` runs the twelve cheats."""

from __future__ import annotations

import contextlib
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
from attacks.table import BACKENDS, OPEN, Row, rows_of, table  # noqa: E402
from m3b.isolation.untrusted import remove_tree  # noqa: E402

NOBODY = 65534
PROBE = "import pytest, numpy; from m3b.isolation.sandbox import choose_sandbox; choose_sandbox()"


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["count"]:
        print("\n".join(f"{number:5}  {name}" for name, number in count().items()))
        return 0
    if arguments[:1] == ["cheats"]:
        return cheats.main()
    user = "root" if os.getuid() == 0 else "ordinary user"
    rows = [(user, row) for row in run([sys.executable], arguments)]
    if user == "root":
        with tempfile.TemporaryDirectory(prefix="m3b-attacks-") as place:
            python = ordinary(Path(place))
            if not python:
                print("As an ordinary user: not run; it takes setpriv, and a Python and packages that all can read.")
            rows += [("ordinary user", row) for row in (run(python, arguments) if python else ())]
    print(table(rows))
    return int(any(row[3] == OPEN for _, row in rows))


def count() -> dict[str, int]:
    """How many attack tests pytest collects, by backend; one test's script may try several ways out."""
    options = ["-p", "attacks.table", "-p", "no:cacheprovider", "-o", "addopts=", "--collect-only", "-q"]
    env = {**os.environ, "PYTHONPATH": str(ATTACKS_FOLDER.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", str(ATTACKS_FOLDER), *options]
    listing = subprocess.run(
        command, env=env, cwd=ATTACKS_FOLDER.parents[1], capture_output=True, text=True, check=True
    ).stdout
    counts = {"all": 0, **dict.fromkeys(BACKENDS, 0), "m3b itself, whatever the backend": 0}
    for node in (line for line in listing.splitlines() if "::" in line):
        ((_, backend, _, _),) = rows_of(node, "passed", "", "")
        counts["all"] += 1
        counts[backend or "m3b itself, whatever the backend"] += 1
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
        env = {**os.environ, "PYTHONPATH": str(ATTACKS_FOLDER.parent), "PYTHONDONTWRITEBYTECODE": "1"}
        tests = {test for attack in around.ATTACKS for test in attack.tests if not test.startswith(around.HERE)}
        command = [*python, "-m", "pytest", str(ATTACKS_FOLDER), *sorted(tests), *options, *arguments]
        subprocess.run(command, env=env, cwd=ATTACKS_FOLDER.parents[1], stdout=sys.stderr, check=False)
        return [tuple(row) for row in json.loads(file.read_text())] if file.exists() else []  # type: ignore[misc]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
