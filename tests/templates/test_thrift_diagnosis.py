"""How much images are altered where few cases are seen few times."""

from __future__ import annotations

from types import ModuleType

import pytest

from m3b.training.diagnosis import short_training


@pytest.fixture
def thrift() -> ModuleType:
    return short_training


@pytest.mark.parametrize(("epochs", "zoom"), [(5, 0.05), (60, 0.05), (130, 0.1), (200, 0.15), (900, 0.15)])
def test_the_fewer_the_epochs_the_less_images_are_altered(thrift: ModuleType, epochs: float, zoom: float) -> None:
    plan = {"augment": {"flip": ["h"], "zoom": 0.15, "rotate": 15}}
    messages = thrift.weaken_augmentation(plan, epochs, set())
    assert plan["augment"]["flip"] == ["h"], "mirroring is no matter of strength"
    assert plan["augment"]["zoom"] == pytest.approx(zoom, abs=1e-3)
    assert bool(messages) == (epochs < 200)
    if messages:
        zoom_text, rotate_text = (f"{key} {plan['augment'][key]:g}" for key in ("zoom", "rotate"))
        assert f"{zoom_text}, {rotate_text}" in messages[0], "the values themselves, not only a share"


def test_alterations_that_were_set_stay(thrift: ModuleType) -> None:
    plan = {"augment": {"zoom": 0.15}}
    assert thrift.weaken_augmentation(plan, 5, {"augment.zoom"}) == []
    assert plan["augment"]["zoom"] == 0.15


def test_what_was_set_beside_them_does_not_keep_the_others(thrift: ModuleType) -> None:
    """With `augment.flip=["w"]`, which is no strength, 14 epochs had all alterations in full."""
    plan = {"augment": {"flip": ["w"], "zoom": 0.15, "rotate": 15}}
    assert thrift.weaken_augmentation(plan, 14, {"augment.flip", "augment.rotate"})
    assert plan["augment"] == {"flip": ["w"], "zoom": 0.05, "rotate": 15}
    assert thrift.weaken_augmentation({"augment": {"zoom": 0.15}}, 14, {"augment"}) == []
