"""The registry of checks: those of m3b name codes that exist, and others can be added."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from audit_kit import find_without_images
from m3b.agents.checks.index import DATA_PROBLEM_CODES, UNFIXABLE_CODES
from m3b.data.index import Index, Record
from m3b.dataset.audit import AuditCheck, AuditData, Finding, run_checks
from m3b.dataset.audit.registry import CHECKS, are_installed
from m3b.run.external_sets import SPLIT_ONLY_CODES

CODES = {check.code for check in CHECKS} | {"not_opened", "unlabelled_left_out"}


class OddNumberCheck(AuditCheck):
    """Any index."""

    code = "odd_number"
    remedy = "Take one more."

    def find(self, data: AuditData) -> Iterator[Finding]:
        if len(data.index.records) % 2:
            yield self.make_finding("An odd number of cases.", data.shorten_all(data.owners))


def index(count: int, folder: str = "data/x") -> Index:
    records = tuple(Record(f"{folder}/{n}.png", ("ab"[n % 2],), f"p{n}") for n in range(count))
    return Index(records[: count // 2], records[count // 2 :], ("a", "b"))


def test_codes_that_are_named_exist() -> None:
    explanations = {code for check in CHECKS for code in check.explained_by}
    assert {*explanations, *DATA_PROBLEM_CODES, *UNFIXABLE_CODES, *SPLIT_ONLY_CODES} <= CODES
    assert all(type(check).__doc__ and check.severity in ("reject", "fix", "warn") for check in CHECKS)


def test_a_check_that_is_added() -> None:
    check = OddNumberCheck()
    check.register()
    check.register()  # the same again
    try:
        assert not are_installed(), "other processes do not have it"
        (finding,) = [finding for finding in find_without_images(index(41)) if finding.code == "odd_number"]
        assert finding.agent_message == "An odd number of cases. Take one more."
        assert finding.cases[:2] == ("0.png", "1.png")
        assert not [finding for finding in find_without_images(index(40)) if finding.code == "odd_number"]
        with pytest.raises(ValueError, match="odd_number"):
            type("Other", (OddNumberCheck,), {})().register()
    finally:
        check.unregister()
    assert are_installed()
    with pytest.raises(ValueError, match="no code"):
        type("Nameless", (OddNumberCheck,), {"code": ""})().register()


def test_scope_and_explanation() -> None:
    of_masks = type("OfMasks", (OddNumberCheck,), {"targets": ("masks",)})()
    of_images = type("OfImages", (OddNumberCheck,), {"needs_images": True})()
    explained = type("Explained", (OddNumberCheck,), {"code": "explained", "explained_by": ("odd_number",)})()
    data = AuditData(index(41), Path("/nowhere"))
    assert run_checks([of_masks, of_images], data) == []
    assert [finding.code for finding in run_checks([OddNumberCheck(), explained], data)] == ["odd_number"]
    assert [finding.code for finding in run_checks([explained], data)] == ["explained"]


def test_short_names_of_cases() -> None:
    data = AuditData(index(4, "data/x/images/train"), Path("/nowhere"))
    assert data.shorten("data/x/images/train/3.png") == "3.png"
    masked = Record("data/x/images/a.nii", patient="p", mask="data/x/masks/a.nii")
    data = AuditData(Index((masked,), (), ("a",), "segmentation"), Path("/nowhere"))
    assert data.shorten_all(["data/x/images/a.nii", "data/x/masks/a.nii"]) == ("images/a.nii", "masks/a.nii")
    assert data.shorten("data/x/images/a.png|data/x/images/b.png") == "images/a.png (+1)"
