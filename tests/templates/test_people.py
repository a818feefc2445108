"""How plans and trainings speak of patients."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "resources/templates/shared/people.py"


@pytest.mark.parametrize(
    ("patients", "said"),
    [
        (["a", "b", "a"], "2 patients"),
        (["a"], "1 patient"),
        (["unknown-0001", "unknown-0002"], "unknown patients"),
        (["unknown-0001", "a"], "2 patients"),
        ([], "0 patients"),
    ],
)
def test_no_number_of_people_is_told_where_nobody_knows_them(patients: list[str], said: str) -> None:
    spec = importlib.util.spec_from_file_location("people_of_templates", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.people(patients) == said
