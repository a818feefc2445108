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
    "timm", "torchvision", "torchxrayvision", "dino", "clip", "medsam", "swinunetr", "suprem", "stunet", "merlin",
    "totalsegmentator", "medgemma", "llava-rad",
}  # fmt: skip


def test_each_family_says_all_that_a_user_has_to_know() -> None:
    assert {entry.family for entry in list_pretrained()} == FAMILIES
    assert len({entry.name for entry in list_pretrained()}) == len(list_pretrained())
    for entry in list_pretrained():
        assert entry.source.startswith("https://"), entry.name
        assert entry.weight_files, entry.name
        assert entry.licence, entry.name
        assert entry.citation, entry.name
        assert entry.arch or entry.builder in ("transformers", "nnunet", "writer"), entry.name
        assert len(entry.mean) == len(entry.std) == (entry.channels if entry.range in ("unit", "window") else 0), (
            entry.name
        )
        assert (entry.window is not None) == (entry.range == "window"), entry.name
        assert not entry.size or len(entry.size) == entry.dims, entry.name
        assert not entry.spacing or len(entry.spacing) == entry.dims, entry.name
        for pattern, _ in entry.keys:
            re.compile(pattern)
        for pattern in entry.leave:
            re.compile(pattern)
        for file, digest in entry.sha256.items():
            assert file in entry.files, entry.name
            assert re.fullmatch("[0-9a-f]{8,64}", digest), entry.name


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
    result = CliRunner().invoke(app, ["models", "list", "--here"])
    assert result.exit_code == 0, result.output
    assert "torchvision/resnet18" in result.output
    assert "1 MB" in result.output
    assert "rad-dino" not in result.output
    listing = json.loads(CliRunner().invoke(app, ["models", "list", "--task", "report", "--json"]).stdout)
    assert listing["store"] == str(tmp_path)
    assert {entry["name"]: entry["folder"] for entry in listing["models"]}["torchvision/resnet18"] == str(folder)
    assert {"medgemma/4b-it", "rad-dino"} <= {entry["name"] for entry in listing["models"]}
    only = json.loads(CliRunner().invoke(app, ["models", "list", "--task", "diagnosis", "--json"]).stdout)
    assert "medgemma/4b-it" not in {entry["name"] for entry in only["models"]}
    wrong = CliRunner().invoke(app, ["models", "list", "--task", "cooking"])
    assert isinstance(wrong.exception, UsageError)


def test_a_store_that_cannot_be_looked_into_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from m3b.training.pretrained.starts import list_suitable

    monkeypatch.delenv("M3B_WEIGHTS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", f"/{'a' * 300}")  # an OSError on every call, as a folder of another user is
    assert find_stored_weights("biomedclip") is None
    assert not any(list_suitable(2, "diagnosis", False).values())
