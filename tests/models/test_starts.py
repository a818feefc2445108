"""The registry of pretrained starting points, and `m3b models list`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from m3b.cli.app import app
from m3b.errors import UsageError
from m3b.models.pretrained import find_pretrained, find_stored_weights, list_pretrained
from m3b.models.pretrained.registry import PretrainedModel, read_family

FAMILIES = {
    "timm", "torchvision", "torchxrayvision", "dino", "clip", "medsam", "swinunetr", "suprem", "stunet",
    "totalsegmentator", "medgemma", "llava-rad",
}  # fmt: skip


def test_each_family_says_all_that_a_user_has_to_know() -> None:
    assert {one.family for one in list_pretrained()} == FAMILIES
    assert len({one.name for one in list_pretrained()}) == len(list_pretrained())
    for one in list_pretrained():
        assert one.source.startswith("https://"), one.name
        assert one.weight_files, one.name
        assert one.licence, one.name
        assert one.citation, one.name
        assert one.arch or one.builder in ("transformers", "nnunet", "writer"), one.name
        assert len(one.mean) == len(one.std) == (one.channels if one.range in ("unit", "window") else 0), one.name
        assert (one.window is not None) == (one.range == "window"), one.name
        assert not one.size or len(one.size) == one.dims, one.name
        assert not one.spacing or len(one.spacing) == one.dims, one.name
        for pattern, _ in one.keys:
            re.compile(pattern)
        for pattern in one.leave:
            re.compile(pattern)
        for file, digest in one.sha256.items():
            assert file in one.files, one.name
            assert re.fullmatch("[0-9a-f]{8,64}", digest), one.name


def test_a_family_with_an_unknown_word_is_no_registry(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text('[family]\nname = "x"\ntypo = 1\n[[entry]]\nname = "x/y"\n')
    with pytest.raises(ValidationError, match="typo"):
        read_family(tmp_path / "x.toml")


def test_an_unknown_name_is_answered_with_near_ones() -> None:
    with pytest.raises(UsageError, match=r"Did you mean.*rad-dino"):
        find_pretrained("raddino")
    assert isinstance(find_pretrained("rad-dino"), PretrainedModel)


def test_the_list_says_which_are_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("M3B_WEIGHTS", str(tmp_path))
    folder = tmp_path / "torchvision" / "resnet18"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"\0" * 2**20)
    assert find_stored_weights("torchvision/resnet18") is None  # without its description nobody knows what it is
    (folder / "m3b-start.json").write_text("{}")
    shown = CliRunner().invoke(app, ["models", "list", "--here"])
    assert shown.exit_code == 0, shown.output
    assert "torchvision/resnet18" in shown.output
    assert "1 MB" in shown.output
    assert "rad-dino" not in shown.output
    told = json.loads(CliRunner().invoke(app, ["models", "list", "--task", "report", "--json"]).stdout)
    assert told["store"] == str(tmp_path)
    assert {one["name"]: one["folder"] for one in told["models"]}["torchvision/resnet18"] == str(folder)
    assert {"medgemma/4b-it", "rad-dino"} <= {one["name"] for one in told["models"]}
    only = json.loads(CliRunner().invoke(app, ["models", "list", "--task", "diagnosis", "--json"]).stdout)
    assert "medgemma/4b-it" not in {one["name"] for one in only["models"]}
    wrong = CliRunner().invoke(app, ["models", "list", "--task", "cooking"])
    assert isinstance(wrong.exception, UsageError)
