"""How plans and trainings speak of patients."""

from __future__ import annotations

import pytest

from m3b.training.patients import describe_patients


@pytest.mark.parametrize(
    ("patients", "description"),
    [
        (["a", "b", "a"], "2 patients"),
        (["a"], "1 patient"),
        (["unknown-0001", "unknown-0002"], "unknown patients"),
        (["unknown-0001", "a"], "2 patients"),
        ([], "0 patients"),
    ],
)
def test_no_number_of_people_is_told_where_nobody_knows_them(patients: list[str], description: str) -> None:
    assert describe_patients(patients) == description
