"""The index that goes to the reader with each part of the cases: few records, the same properties."""

from __future__ import annotations

import pytest

from m3b.data.index import Index
from m3b.data.records import Record
from m3b.tasks.worker_jobs import reduce_index

CLASSES = ("clear", "opacity")


def diagnosis_records(count: int, several_at: int | None) -> tuple[Record, ...]:
    return tuple(
        Record(f"{n}.png", CLASSES if n == several_at else (CLASSES[n % 2],), f"p{n}" if n != 7 else "")
        for n in range(count)
    )


@pytest.mark.parametrize("several_at", [None, 0, 150, 399])
def test_few_cases_have_all_properties_of_the_index(several_at: int | None) -> None:
    records = diagnosis_records(400, several_at)
    index = Index(records[:300], records[300:], CLASSES)
    reduced = reduce_index(index)
    assert len(reduced.records) <= 3
    assert set(reduced.records) <= set(records)
    assert (reduced.classes, reduced.values, reduced.task) == (index.classes, index.values, index.task)
    assert (reduced.multi_label, reduced.patients_known) == (index.multi_label, index.patients_known)
    assert index.multi_label is (several_at is not None)


def test_an_index_without_cases_stays_as_it_is() -> None:
    index = Index((), (), CLASSES)
    assert reduce_index(index) == index
