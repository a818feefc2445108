"""The code of the guards, compiled once per process and passed to each interpreter that runs them.

A bare interpreter would search for the files of the package, and compile them for each command if it cannot cache the
result. Instead it gets all of them from one descriptor, a sealed file in memory that cannot be changed any more.
"""

from __future__ import annotations

import fcntl
import marshal
import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import CodeType

from m3b.errors import SandboxError

PACKAGE = "guard"
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE

_IMPORTER_CODE = """
import marshal, os, sys
def load(descriptor):
    os.set_inheritable(descriptor, False)
    codes = marshal.loads(os.pread(descriptor, os.fstat(descriptor).st_size, 0))
    Spec = type(sys.__spec__)
    class Loader:
        def find_spec(name, path=None, target=None):
            return Spec(name, Loader, origin=name, is_package=name == "guard") if name in codes else None
        def create_module(spec):
            return None
        def exec_module(module):
            exec(marshal.loads(codes[module.__name__]), module.__dict__)
    sys.meta_path.insert(0, Loader)
"""


def bootstrap_code(module: str) -> str:
    """Return Python code that runs `guard.<module>` from the bundle, in an interpreter with `bundle_descriptor()`."""
    run = f"load({bundle_descriptor()}); from guard import {module}; sys.exit({module}.main(sys.argv[1:]))"
    return f"{_IMPORTER_CODE}{run}"


def bundle_descriptor() -> int:
    """Return the descriptor of a sealed file in memory with all guards: module name -> code, in marshal format.

    Raises:
        SandboxError: it cannot be written, for example because of a low limit on the size of files (`ulimit -f`).
    """
    try:
        return _make_descriptor(os.getpid())
    except OSError as error:
        raise SandboxError(
            f"The code of the sandbox's guards could not be written to memory: {error.strerror or error}. It needs about "
            "100 KiB: is there a limit on the size of files (`ulimit -f`) or no memory left?"
        ) from error


@cache
def _make_descriptor(pid: int) -> int:
    codes = {name: marshal.dumps(code) for name, code in _compile_guards().items()}
    memfd = os.memfd_create("m3b-guards", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with os.fdopen(os.dup(memfd), "wb") as file:
        file.write(marshal.dumps(codes))
    fcntl.fcntl(memfd, fcntl.F_ADD_SEALS, _SEALS)
    return memfd


def _compile_guards() -> dict[str, CodeType]:
    folder = Path(__file__).parent / PACKAGE
    names = [f"{PACKAGE}.{file.stem}" for file in sorted(folder.glob("*.py")) if file.stem != "__init__"]
    return {name: _compile_guard(name) for name in (PACKAGE, *names)}


def _compile_guard(name: str) -> CodeType:
    """Return the code of one guard; Python's cached bytecode is used if there is any."""
    spec = find_spec(f"{__package__}.{name}")
    code = spec.loader.get_code(spec.name) if spec and spec.loader and hasattr(spec.loader, "get_code") else None
    if not isinstance(code, CodeType):
        raise SandboxError(f"m3b's own module {__package__}.{name} is missing; install m3b again")
    return code
