"""Preprocessing, cache, augmentation, ranks and the plan, without training."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from template_kit import Run, load

from m3b.training import entry

cache, preprocess, ranks = load("cache"), load("preprocess"), load("ranking_metrics")
PLAN = {"dims": 2, "channels": 1, "size": [8, 8], "spacing": None, "intensity": {"mode": "percentile"}, "workers": 2}


def _files(folder: Path, count: int) -> list[str]:
    for k in range(count):
        np.save(folder / f"{k}.npy", np.random.default_rng(k).normal(size=(12, 10)).astype(np.float32))
    return [f"{k}.npy" for k in range(count)]


def test_cache_is_built_once_and_follows_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = _files(tmp_path, 6)
    calls: list[str] = []
    real = cache.prepare_image
    monkeypatch.setattr(cache, "prepare_image", lambda path, *arguments: calls.append(path) or real(path, *arguments))
    first, readable = cache.build_cache(paths, PLAN, tmp_path / "cache", str(tmp_path))
    again, _ = cache.build_cache(paths, PLAN, tmp_path / "cache", str(tmp_path))
    assert sorted(calls) == sorted(paths)
    assert readable.all()
    assert np.array_equal(first, again)
    cache.build_cache(paths, {**PLAN, "size": [6, 6]}, tmp_path / "cache", str(tmp_path))
    assert len(calls) == 12


def test_interrupted_cache_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = _files(tmp_path, 6)
    real, calls = cache.prepare_image, []

    def interrupted_prepare(path: str, *arguments: object) -> np.ndarray:
        calls.append(path)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return real(path, *arguments)

    monkeypatch.setattr(cache, "_SHARD_CASES", 2)
    monkeypatch.setattr(cache, "prepare_image", interrupted_prepare)
    with pytest.raises(KeyboardInterrupt):
        cache.build_cache(paths, {**PLAN, "workers": 1}, tmp_path / "cache", str(tmp_path))
    data, _ = cache.build_cache(paths, {**PLAN, "workers": 1}, tmp_path / "cache", str(tmp_path))
    assert 2 <= len(calls) - 5 <= 3
    assert np.array_equal(data[0], real("0.npy", PLAN, str(tmp_path)))


def test_unreadable_cases_are_left_out_or_refused(tmp_path: Path) -> None:
    paths = _files(tmp_path, 30)
    (tmp_path / "3.npy").write_bytes(b"no")
    _, readable = cache.build_cache(paths, PLAN, tmp_path / "cache", str(tmp_path))
    assert np.flatnonzero(~readable).tolist() == [3]
    with pytest.raises(cache.CacheError, match=r"3\.npy"):
        cache.build_cache(paths[:4], PLAN, tmp_path / "cache", str(tmp_path))


@settings(max_examples=30)
@given(st.integers(2, 3), st.data())
def test_prepared_arrays_have_the_planned_form(dims: int, data: st.DataObject) -> None:
    side = st.integers(5, 24)
    shape = tuple(data.draw(side) for _ in range(dims))
    size = [data.draw(st.integers(4, 16)) for _ in range(dims)]
    channels, fit = data.draw(st.sampled_from([1, 3])), data.draw(st.sampled_from(["stretch", "pad"]))
    mode = data.draw(st.sampled_from(["unit", "percentile", "window"]))
    image = load("m3b.dataset.formats").Image(np.random.default_rng(0).normal(0, 300, (1, *shape)), (1.0,) * dims, dims)
    plan = {"dims": dims, "channels": channels, "size": size, "fit": fit}
    plan |= {
        "intensity": {"mode": mode, "low": -100, "high": 100},
        "spacing": data.draw(st.sampled_from([None, [2.0] * dims])),
    }
    array = preprocess.preprocess(image, plan)
    assert (array.shape, array.dtype) == ((channels, *size), np.float32)
    assert np.isfinite(array).all()


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=2, max_size=40))
def test_auroc_agrees_with_scikit_learn(cases: list[tuple[bool, int]]) -> None:
    from sklearn.metrics import roc_auc_score

    truth, score = np.array([c[0] for c in cases]), np.array([c[1] for c in cases], float)
    if truth.all() or not truth.any():
        assert np.isnan(ranks.auroc(truth, score))
    else:
        assert ranks.auroc(truth, score) == pytest.approx(roc_auc_score(truth, score))


@pytest.mark.parametrize("shape", [(4, 1, 20, 16), (4, 2, 12, 10, 8)])
def test_augmentation_keeps_form_and_centre(shape: tuple[int, ...]) -> None:
    import torch

    augment = load("augment").Augment
    batch = torch.randn(shape)
    everything = {"flip": ["h", "w"], "rotate": 20, "zoom": 0.2, "shift": 0.1, "contrast": 0.2, "gamma": 0.3}
    changed = augment({**everything, "noise": 0.1, "brightness": 0.1, "erase": 0.3})(batch)
    assert changed.shape == batch.shape
    assert torch.isfinite(changed).all()
    assert not torch.allclose(changed, batch)
    assert torch.equal(augment({})(batch), batch)


def test_a_quarter_turn_keeps_a_long_image_in_proportion() -> None:
    import torch

    image = torch.zeros(1, 1, 32, 64)
    image[:, :, 12:20, 28:36] = 1.0  # a square of 8 by 8
    for _ in range(5):
        turned = load("augment").Augment({"rotate": 45})(image)[0, 0]
        assert float(turned.sum()) == pytest.approx(64, rel=0.1)


def test_plan_from_the_example_and_its_overrides(project: Path, run: Run) -> None:
    run("example/make_example.py", "--cases", "40")
    (project / "Datapath" / "test.json").unlink()  # it must not be needed
    printed = run(
        "plan.py", "--minutes", "3", "--set", "lr=0.01", "network.name=resnet18", "size=[24,24]", "folds=1"
    ).stdout
    plan = json.loads((project / "plan.json").read_text())
    assert (plan["lr"], plan["network"]["name"], plan["size"]) == (0.01, "resnet18", [24, 24])
    assert (plan["classes"], plan["dims"], plan["channels"], plan["folds"]) == (["disc", "square"], 2, 1, 1)
    assert "32 cases of 16 patients" in printed
    assert run("plan.py", "--set", "speed=3", check=False).returncode != 0
    run("-c", WEIGHTS)


WEIGHTS = """
import json; from m3b.training.diagnosis import plan
records, label_dict = (json.load(open(f"Datapath/{name}.json")) for name in ("train", "label_dict"))
facts = plan.fingerprint(records, label_dict)
def weights(multi, *counts):
    made = plan.make_plan({**facts, "cases": 1000, "multi_label": multi, "counts": dict(zip(facts["classes"], counts))}, 3, False)
    return made["class_weights"]
assert weights(False, 500, 500) == [1.0, 1.0]
often, rare = weights(False, 900, 100)
assert 2.9 < rare / often < 3.1, "by the root of how rare it is: nine times as much made a rare class cry wolf"
assert weights(True, 990, 10) == [0.3333, 3.0], "99 times as much made everything positive"
"""


def test_validation_shares_no_patient_and_keeps_classes(project: Path, run: Run) -> None:
    run("example/make_example.py", "--cases", "60")
    run("plan.py", "--set", "folds=4")
    code = (
        "import json; from m3b.training.diagnosis.dataset import build_datasets, describe_parts\n"
        "plan = json.load(open('plan.json'))\n"
        "seen = []\n"
        "for fold in range(4):\n"
        "    train, valid = build_datasets(plan, fold)\n"
        "    assert not {r['patient'] for r in train.records} & {r['patient'] for r in valid.records}\n"
        "    assert {r['labels'][0] for r in valid.records} == {'disc', 'square'}\n"
        "    item = valid[0]; assert item['pixel_values'].shape == (1, 32, 32) and item['labels'].shape == (2,)\n"
        "    seen += [r['image_path'] for r in valid.records]\n"
        "counts = [seen.count(path) for path in set(seen)]; assert len(counts) == 48\n"
        "assert set(counts) == {1, 4}, 'every fold holds out the cases on which networks are compared'\n"
        "shared, own = counts.count(4), len(valid) - counts.count(4); assert valid.shared_cases == shared\n"
        "assert f'{len(valid)} validation cases ({own} of its fold, {shared} ' in describe_parts(train, valid)\n"
        "train, valid = build_datasets({**plan, 'folds': 1})\n"
        "assert describe_parts(train, valid) == f'{len(train)} training cases, {len(valid)} validation cases'\n"
        "valid = build_datasets(plan, 3)[1]\n"
        "import numpy as np\nfrom m3b.training.diagnosis import train as training\n"
        "few = valid.labels[valid.rows]; assert few.sum(axis=0).max() < 10\n"
        "assert training.has_too_few_cases(few), 'the best epoch of a dozen cases was the second of 48'\n"
        "assert not training.has_too_few_cases(np.repeat(few, 4, axis=0))"
    )
    run("-c", code)


def test_a_fresh_start_keeps_what_scripts_print_into_logout(tmp_path) -> None:
    """A run's own log of `python train.py` lies in Logout/jobs; it was once deleted under the running script."""
    logout = tmp_path / "Logout"
    for name in ("jobs/001.log", "cache/a.npy", "fold0/best.safetensors", "log.csv"):
        (logout / name).parent.mkdir(parents=True, exist_ok=True)
        (logout / name).write_text("x")
    entry.prepare_logout(resume=False, logout=logout)
    assert sorted(item.name for item in logout.rglob("*") if item.is_file()) == ["001.log", "a.npy"]


def test_a_misspelled_setting_is_refused() -> None:
    """`netwrok.width=3` was once written into nothing, and nobody heard of it."""
    from template_kit import load

    settings = load("plan_settings")
    plan = {"lr": 0.1, "network": {"name": "a"}, "seed": 0}
    settings.apply_override(plan, "network.width=3")
    settings.apply_override(plan, "max_steps=5")
    assert plan == {"lr": 0.1, "network": {"name": "a", "width": 3}, "seed": 0, "max_steps": 5}
    for wrong, message in (
        ("netwrok.width=3", r"not KEY=VALUE with a key of plan\.json"),
        ("lr.x=1", r"not KEY=VALUE with a key of plan\.json"),
        ("lr", r"not KEY=VALUE with a key of plan\.json"),
        ("learning_rate=1", r"plan\.json has no setting 'learning_rate'"),
        ("network.widht=8", r"network in plan\.json has no setting 'widht'; did you mean width\?"),
        ('network={"name":"a","depth":3}', r"network in plan\.json has no setting 'depth'"),
        ("task=report", "follows from the data"),
        *((f"seed={value}", "a whole number from 0") for value in ("-1", "abc", "1.5", "true", "4294967296")),
    ):
        with pytest.raises(SystemExit, match=message):
            settings.apply_override(plan, wrong)
    with pytest.raises(SystemExit, match="has no setting 'filters'"):
        settings.apply_override({**plan, "task": "diagnosis"}, "network.filters=[8,16]")


def test_answers_are_written_whatever_the_files_are_called(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    calling = load("prediction_calls")
    out = tmp_path / "new" / "out.json"
    (tmp_path / "config.json").write_text("{}")
    call = calling.parse_call(["肺.png", "-o", str(out)], "doc", batch=4, home=tmp_path)
    assert (call.paths, call.batch, call.masks, call.base_folder) == (["肺.png"], 4, out.parent / "masks", out.parent)
    assert calling.write_answers([{"image": "肺.png"}], call) == 0
    assert "肺" in out.read_text(encoding="utf-8")
    odd_path = os.fsdecode(b"\xff.png")
    assert calling.write_answers(iter([{"image": odd_path, "error": f"{odd_path}: no image"}]), call) == 1
    assert json.loads(out.read_text())[0]["image"] == odd_path

    (tmp_path / "list.json").write_text('[["a.dcm", "b.dcm"]]')
    call = calling.parse_call(
        ["--list", str(tmp_path / "list.json"), "--masks", "m", "--batch", "0"], "doc", batch=4, home=tmp_path
    )
    assert (call.paths, call.out, call.batch, call.masks) == ([["a.dcm", "b.dcm"]], None, 1, Path("m").resolve())
    capfdbinary.readouterr()
    calling.write_answers([{"image": "肺"}], call)
    assert "肺".encode() in capfdbinary.readouterr().out, "UTF-8 whatever the terminal's language"
    with pytest.raises(SystemExit):
        calling.parse_call([], "doc", batch=4, home=tmp_path)


def test_a_setting_that_the_index_fixes_is_refused_with_the_key_that_sets_it() -> None:
    with pytest.raises(SystemExit, match=r"images\.frames"):
        load("plan_settings").apply_override({"task": "diagnosis", "frames": 4}, "frames=1")
