"""Serve a deliverable's predict.py in a confined process: each request is a command line, its answer the exit status.

    python m3b_worker.py PROTOCOL.py PREDICT.py REQUESTS ANSWERS

A request with `files` is answered by the axes of these images instead (`image_axes.py`).

PROTOCOL.py is `m3b.isolation.reader.protocol`; REQUESTS and ANSWERS are descriptors of pipes. Nothing else of m3b is needed or
visible. The output of a request goes to its log file. A script that ends the process ends the worker; m3b starts
another one.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import os
import runpy
import sys
import traceback
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

SLOW_LIBRARIES = ("torch",)
"""Libraries that are imported before the first request comes, if the script imports them."""
ARGUMENT_READERS = frozenset({"argv", "parse_args", "parse_known_args", "parse_intermixed_args"})


def load_file(name: str, file: str) -> ModuleType:
    """Import one file as the module `name`."""
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class PredictScript:
    """A predict.py, whose weights stay loaded between requests if the script allows that.

    The part under `if __name__ == "__main__":` runs again for each request. A script without such a part at its end, or
    one that reads its arguments above that part, runs as a whole each time.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self._definitions, self._entry = split_script(file)
        self._module: ModuleType | None = None

    def import_libraries(self) -> None:
        """Import the slow libraries of the script, while m3b prepares the first request; the script reports errors."""
        for name in SLOW_LIBRARIES:
            if self._definitions is not None and name in self._definitions.co_names:
                with contextlib.suppress(Exception):
                    importlib.import_module(name)

    @property
    def stays_loaded(self) -> bool:
        """Whether the next request finds the weights loaded."""
        return self._module is not None

    def run(self, arguments: list[str]) -> int:
        """Run the script with these arguments; return its exit status, which is 1 for an exception."""
        sys.argv = [self.file, *arguments]
        try:
            self._run()
        except SystemExit as end:
            return exit_status(end.code)
        except BaseException:  # noqa: BLE001 - as in a process of its own, where it would be printed
            traceback.print_exc()
            return 1
        return 0

    def _run(self) -> None:
        if self._definitions is None or self._entry is None:
            runpy.run_path(self.file, run_name="__main__")
            return
        if self._module is None:
            module = ModuleType("predict")
            module.__file__ = self.file
            sys.modules["predict"] = module  # dataclasses and pickles look for it there
            exec(self._definitions, module.__dict__)  # nosec B102  # the model's own code, confined
            self._module = module
        exec(self._entry, self._module.__dict__)  # nosec B102  # as above


def split_script(file: str) -> tuple[CodeType | None, CodeType | None]:
    """Return the code above `if __name__ == "__main__":` and the code below it; None, None if they cannot be separated."""
    try:
        tree = ast.parse(Path(file).read_bytes(), file)
    except (SyntaxError, ValueError, RecursionError):
        return None, None  # running it prints the reason
    *definitions, last = tree.body or [ast.Pass()]
    if not isinstance(last, ast.If) or last.orelse or not is_main_test(last.test):
        return None, None
    if any(reads_arguments(statement) for statement in definitions):
        return None, None
    parts = (ast.Module(definitions, []), ast.Module(last.body, []))
    return compile(parts[0], file, "exec"), compile(parts[1], file, "exec")


def is_main_test(test: ast.expr) -> bool:
    """Return whether an expression is `__name__ == "__main__"`."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq):
        return False
    sides = [test.left, *test.comparators]
    names = [side.id for side in sides if isinstance(side, ast.Name)]
    values = [side.value for side in sides if isinstance(side, ast.Constant)]
    return names == ["__name__"] and values == ["__main__"]


def reads_arguments(statement: ast.stmt) -> bool:
    """Return whether a statement of the module's top level reads the command line when it is executed."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    for node in ast.walk(statement):
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if name in ARGUMENT_READERS:
            return True
    return False


def exit_status(code: object) -> int:
    """Return the exit status that Python gives for the value of a SystemExit."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def redirect_output(log: str) -> None:
    """Send standard output and error, of libraries in C too, to the file `log`."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    for target in (1, 2):
        os.dup2(descriptor, target)
    os.close(descriptor)


def main() -> None:
    """Serve until the other side closes its end."""
    protocol_file, file, *descriptors = sys.argv[1:]
    requests, answers = map(int, descriptors)
    for descriptor in (requests, answers):
        os.set_inheritable(descriptor, False)  # programs that predict.py starts must not answer
    protocol: Any = load_file("m3b_protocol", protocol_file)
    receiver, script, streams = protocol.MessageReceiver(requests), PredictScript(file), (sys.stdout, sys.stderr)
    image_axes: Any = load_file("m3b_image_axes", str(Path(__file__).with_name("image_axes.py")))
    script.import_libraries()  # before the model's folder is on the path: none of its code runs before a request
    sys.path.insert(0, str(Path(file).parent))
    working_dir = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    while True:
        try:
            request = receiver.receive()
        except protocol.ConnectionClosed:
            return
        sys.stdout, sys.stderr = streams
        redirect_output(request["log"])
        if "files" in request:
            axes = [image_axes.read_axes(path) for path in request["files"]]
            protocol.send_message(answers, {"id": request["id"], "status": 0, "axes": axes})
            continue
        os.fchdir(working_dir)
        status = script.run(request["arguments"])
        for stream in (*streams, sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):  # predict.py closed it
                stream.flush()
        protocol.send_message(answers, {"id": request["id"], "status": status, "stays_loaded": script.stays_loaded})


if __name__ == "__main__":
    main()
