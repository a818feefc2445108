"""The words of the code: the glossary has what it promises, and no public name is a bare pronoun or participle."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "m3b"

REBUILT_LATER = ("data/", "tools/previews/")
"""Packages that `m3b.dataset` replaces; their names go with them."""

BARE_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
        one some own other others mine theirs yours each more most less least same rest there here where what why who whose
        which found told said made kept given asked held shown seen taken wanted chosen known whole beside apart inside
        outside named listed counted opened joined measured played heard spoken looked begun settled meant left drawn put
        gone come bare plain odd few many much like unlike called written stated noted thought
        """,
    )
)
"""Words that do not say what a thing is."""


SERIALISED_FIELDS = frozenset({"asked", "chosen", "given", "kept", "known", "named", "opened", "said", "where", "why"})
"""Fields whose names are keys of files that earlier versions wrote."""


def public_names(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and name of public modules, classes, functions, methods, fields, constants and arguments of a file."""
    yield 0, file.stem
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                yield argument.lineno, argument.arg
        if isinstance(node, ast.ClassDef | ast.Module):
            for statement in node.body:
                targets = statement.targets if isinstance(statement, ast.Assign) else []
                targets = [statement.target] if isinstance(statement, ast.AnnAssign) else targets
                names = [(target.lineno, target.id) for target in targets if isinstance(target, ast.Name)]
                yield from (pair for pair in names if isinstance(node, ast.Module) or pair[1] not in SERIALISED_FIELDS)


def test_no_public_name_is_a_bare_word() -> None:
    wrong = [
        f"{file.relative_to(SRC)}:{line} {name}"
        for file in sorted(SRC.rglob("*.py"))
        if not file.relative_to(SRC).as_posix().startswith(REBUILT_LATER)
        for line, name in public_names(file)
        if not name.startswith("_") and name.lower() in BARE_WORDS
    ]
    assert wrong == []


def test_the_glossary_has_each_term_once() -> None:
    rows = re.findall(
        r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", (ROOT / "docs/glossary.md").read_text("utf-8"), re.MULTILINE
    )[1:]
    terms = [term for term, _, _ in rows]
    assert 60 <= len(terms) <= 120
    assert len(set(terms)) == len(terms)
    assert terms == sorted(terms, key=str.lower)
