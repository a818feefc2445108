"""Search for an external program, the folders that it needs in the sandbox, and placeholders of its command line."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path


def search_path() -> str:
    """Return the search path for programs: the folder of this interpreter, then the caller's PATH."""
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"


def find_program(word: str) -> str:
    """Return the full path of a program; empty if there is none."""
    return shutil.which(word, path=search_path()) or ""


def fill_placeholders(word: str, values: Mapping[str, str]) -> str:
    """Return the word with each `{name}` replaced; placeholders in inserted values are not replaced."""
    return re.sub(r"\{(\w+)\}", lambda name: values.get(name[1], name[0]), word)


def find_interpreter(program: Path) -> Path:
    """Return the Python of a program that pip installed.

    It is named in the first line of the program; if that names a shell, it is in the same folder.
    """
    with program.open("rb") as stream:
        first_line = stream.readline(4096)
    shebang_python = (
        Path(first_line[2:].decode("utf-8", "replace").strip().split(" ")[0])
        if first_line.startswith(b"#!/")
        else program
    )
    sibling_python = program.resolve().with_name("python")
    return (
        sibling_python if not shebang_python.name.startswith("python") and sibling_python.is_file() else shebang_python
    )


def list_program_folders(word: str) -> tuple[Path, ...]:
    """Return the folders of a program that must be mounted in the sandbox: its own, its environment, its Python."""
    program = Path(word)
    if not program.is_absolute() or word.startswith(("/usr/", "/bin/")):
        return ()
    needed_folders = [program.parent, program.resolve().parent]
    python = find_interpreter(program)
    for path in (program, python, python.resolve()):
        if (path.parent.parent / "pyvenv.cfg").is_file() or (path is not program and path.parent.name == "bin"):
            needed_folders.append(path.parent.parent)
    return tuple(path for path in dict.fromkeys(needed_folders) if path.is_dir() and str(path) not in ("/", "/usr"))
