"""Ranges, counts and fields of what names a person are masked in previews of arrays and in the survey."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from m3b.data.phi import mask
from m3b.dataset.survey.render import render, summarize
from m3b.dataset.survey.survey import survey
from m3b.tools.previews.arrays import preview

SECRETS = ("4471923", "4471960", "Thornton", "19560312", "9876543")
RECORDS = np.array(
    [(f"Emily Thornton{at}", 4471923 + at, 19560312 + at, at % 2, "call 0171-9876543") for at in range(38)],
    [("patient_name", "U20"), ("mrn", "i8"), ("birth_date", "i8"), ("grade", "i8"), ("note", "U30")],
)


def write_arrays(folder: Path) -> list[Path]:
    np.save(folder / "records.npy", RECORDS)
    np.savez(folder / "arrays.npz", **{name: RECORDS[name] for name in RECORDS.dtype.names})
    with h5py.File(folder / "store.h5", "w") as store:
        for name in RECORDS.dtype.names:
            values = RECORDS[name]
            store[f"cases/{name}"] = values.astype("S") if values.dtype.kind == "U" else values
    return sorted(folder.iterdir())


def test_previews_of_arrays(tmp_path: Path) -> None:
    for file in write_arrays(tmp_path):
        text = "\n".join(preview(file, "mask"))
        assert [secret for secret in SECRETS if secret in text] == [], text
        assert "range 0 to 1" in text
        assert "4471923" in "\n".join(preview(file, "allow"))


@pytest.mark.parametrize("files", ["arrays", "table"])
def test_the_survey(tmp_path: Path, files: str) -> None:
    if files == "arrays":
        write_arrays(tmp_path)
    else:
        rows = [f"{at}.png,{7 * at * at + 4471923},{at % 2}" for at in range(38)]
        (tmp_path / "cases.csv").write_text("\n".join(["image,mrn,grade", *rows]))
    facts = survey(tmp_path)
    for text in (render(facts), summarize(facts), facts.model_dump_json()):
        assert [secret for secret in (*SECRETS, "4.47192e+06") if secret in text] == [], text
    if files == "table":
        [column] = [column for column in facts.tables[0].columns if column.name == "mrn"]
        assert (column.sensitive, column.low, column.high) == ("identity", None, None)
        assert column.examples[0].startswith(mask("x")[:8])
