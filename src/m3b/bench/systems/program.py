"""Where a program lies, what it needs to be seen of the machine, and how the words of its command line are filled in."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path


def search_path() -> str:
    """This interpreter's own programs first, then the caller's PATH."""
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"


def find_program(word: str) -> str:
    """The program's full path; empty where there is none."""
    return shutil.which(word, path=search_path()) or ""


def fill_placeholders(word: str, values: Mapping[str, str]) -> str:
    """The word with each `{name}` replaced; what is filled in is left as it is."""
    return re.sub(r"\{(\w+)\}", lambda name: values.get(name[1], name[0]), word)


def find_interpreter(program: Path) -> Path:
    """The Python of a program that pip made: named in its first line, or beside it where a shell stands there."""
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
    """What the sandbox would not show of a program anyway: its own folder, its environment, its Python."""
    program = Path(word)
    if not program.is_absolute() or word.startswith(("/usr/", "/bin/")):
        return ()
    needed_folders = [program.parent, program.resolve().parent]
    python = find_interpreter(program)
    for path in (program, python, python.resolve()):
        if (path.parent.parent / "pyvenv.cfg").is_file() or (path is not program and path.parent.name == "bin"):
            needed_folders.append(path.parent.parent)
    return tuple(path for path in dict.fromkeys(needed_folders) if path.is_dir() and str(path) not in ("/", "/usr"))
