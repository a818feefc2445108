"""What the Task Manager is told of a folder's readings."""

from __future__ import annotations

from m3b.run.manifest_proposals import make_survey_summary


def test_classes_are_told_with_their_counts() -> None:
    labels = {"title": "clips, labels from the names (name.first)", "score": 0.6, "sufficient": True, "unclear": ""}
    labels |= {"evidence": ["labels from the names (name.first): Cov 4, Pneu 14, Reg 20", "100% of 42 images have one"]}
    masks = {"title": "images with masks", "score": 0.5, "sufficient": True, "unclear": "", "evidence": ["37 masks"]}
    proposed = [{"readings": [proposal], "insufficient": ""} for proposal in (labels, masks)]
    read = make_survey_summary(
        [("diagnosis", None), ("segmentation", None)], {"lines": ["g1 x 42"], "proposed": proposed}
    )
    assert [proposal.title for proposal in read.readings] == [
        "clips, labels from the names (name.first): Cov 4, Pneu 14, Reg 20",
        "images with masks",
    ]
