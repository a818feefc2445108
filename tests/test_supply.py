"""What executes code when it is loaded is loaded by nobody, but where it is confined."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src/m3b"
UNPICKLER = {"tools/previews/unpickle.py"}
"""Its `find_class` knows a closed list of names; it runs in the reader."""
WRITERS = {"data/archive_writers.py", "bench/datasets/kneemri.py"}
"""They write pickles: parts of an archive for a training view, invented data in a publisher's form."""
LOADERS = {"pickle.load", "pickle.loads", "pickle.Unpickler", "torch.load", "joblib.load", "shelve.open", "dill.load"}


def calls(file: Path) -> Iterator[tuple[str, ast.Call]]:
    """The calls of a module by their dotted names."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def modules(folder: Path) -> list[Path]:
    found = sorted(folder.rglob("*.py"))
    assert len(found) > 5
    return found


def imported(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(str(node.module).partition(".")[0])
    return names


def flag(call: ast.Call, name: str) -> object:
    """The constant that a keyword argument has; None where it is not given."""
    for word in call.keywords:
        if word.arg == name:
            return word.value.value if isinstance(word.value, ast.Constant) else "not a constant"
    return None


def test_who_may_touch_pickles() -> None:
    dangerous = {"pickle", "cPickle", "_pickle", "dill", "joblib", "shelve", "cloudpickle"}
    found = {str(file.relative_to(SOURCE)) for file in modules(SOURCE) if imported(file) & dangerous}
    assert found == UNPICKLER | WRITERS
    for name in WRITERS:
        assert not {called for called, _ in calls(SOURCE / name)} & LOADERS, name


def test_the_unpickler_resolves_a_closed_list_of_names() -> None:
    (name,) = UNPICKLER
    tree = ast.parse((SOURCE / name).read_text(encoding="utf-8"))
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    unpicklers = [one for one in classes if any("Unpickler" in ast.unparse(base) for base in one.bases)]
    assert unpicklers
    for one in unpicklers:
        assert "find_class" in {part.name for part in one.body if isinstance(part, ast.FunctionDef)}
    assert not {called for called, _ in calls(SOURCE / name)} & LOADERS


def test_arrays_and_weights_are_loaded_without_code() -> None:
    """In m3b no PyTorch file is loaded at all; templates, which run in the sandbox, take tensors alone from one."""
    seen = 0
    for folder in (SOURCE, ROOT / "resources"):
        for file in modules(folder):
            for called, call in calls(file):
                if called in ("np.load", "numpy.load"):
                    assert not flag(call, "allow_pickle"), file
                elif called == "torch.load":
                    assert folder != SOURCE, file
                    assert flag(call, "weights_only") is True, file
                    seen += 1
    assert seen
