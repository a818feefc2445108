"""A small network is trained on drawn images and measured beside oracles."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from interactive_kit import FixedMask, Threshold, write_masked_case

from m3b.cli import main
from m3b.errors import DataError, UsageError
from m3b.interactive.benchmark import run_benchmark
from m3b.interactive.episode import Episode
from m3b.interactive.prompting_metrics import compute_dsc_auc, count_clicks_to, summarize_episodes
from m3b.interactive.segmenter_training import MIN_TARGETS, SegmenterRecipe, prepare_samples, train_segmenter
from m3b.interactive.segmenters.loading import open_segmenter
from m3b.interactive.simulated_user import SimulatedUser, prompt_from_truth
from m3b.interactive.targets import TargetSet, compute_overlap
from m3b.llm.base import ModelFacts
from m3b.teaching.reward import EpisodeOutcome
from m3b.testing.scripted_model import ScriptedModel, call
from watch_kit import opens_below


def test_the_figures_of_a_curve() -> None:
    assert compute_dsc_auc([1.0] * 5) == pytest.approx(4.0)
    assert compute_dsc_auc([0.5, 1.0]) == pytest.approx(0.75 + 3)
    assert compute_dsc_auc([]) == 0
    assert count_clicks_to([0.5, 0.91, 0.95], 5) == 2
    assert count_clicks_to([0.5], 5) == 5


def test_oracles_and_agent_stand_side_by_side(index: Path) -> None:
    source = TargetSet.from_folder(index, "test")
    model = ScriptedModel([call("add_box", box=[200, 200, 800, 800]), call("stop")] * 4, facts=ModelFacts(vision=True))
    benchmark = run_benchmark(list(source), Threshold(), llm=model, exclusions=source.exclusions)
    systems = benchmark.to_json()["systems"]
    assert set(systems) == {
        "no agent", "box oracle", "click oracle", "box and click oracle", "simulated person", "agent (scripted)",
    }  # fmt: skip
    assert systems["box oracle"]["dice_by_turn"][0]["mean"] > 0.9
    assert systems["agent (scripted)"]["requests"] == 8
    assert systems["box oracle"]["patients"] == 4
    oracle = [figure["mean"] for figure in systems["click oracle"]["dice_by_turn"]]
    assert oracle == sorted(oracle)
    assert "DSC-AUC" in benchmark.format_table()


def test_an_empty_mask_is_left_out_and_said(index: Path) -> None:
    from PIL import Image

    Image.fromarray(np.zeros((60, 90), np.uint8)).save(index / "12_mask.png")
    (index / "13.png").write_bytes(b"no picture")
    source = TargetSet.from_folder(index, "test")
    assert len(list(source)) == 2
    assert source.exclusions == {"disk: empty or below 16 pixels": 1, "cannot be read": 1}


def test_a_summary_of_nothing_is_nothing() -> None:
    assert summarize_episodes([], 5) == {"episodes": 0, "patients": 0}


def test_too_few_targets_are_refused(index: Path, tmp_path: Path) -> None:
    targets = list(TargetSet.from_folder(index, "test"))
    with pytest.raises(DataError, match="4 targets are too few"):
        train_segmenter(targets, tmp_path / "net", SegmenterRecipe(steps=2, size=32, widths=(4, 8)))


def test_a_training_that_diverges_says_so(index: Path, tmp_path: Path) -> None:
    targets = list(TargetSet.from_folder(index, "train"))
    with pytest.raises(DataError, match="diverged"):
        train_segmenter(targets, tmp_path / "net", SegmenterRecipe(steps=30, size=32, widths=(4, 8), lr=1e38))
    assert not (tmp_path / "net").exists()


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(UsageError):
        SegmenterRecipe(minutes=0)
    with pytest.raises(UsageError):
        SegmenterRecipe(batch=0)


def test_a_network_learns_to_heed_prompts(index: Path, tmp_path: Path) -> None:
    targets = list(TargetSet.from_folder(index, "train"))
    folder = train_segmenter(
        targets, tmp_path / "net", SegmenterRecipe(steps=100, size=32, widths=(8, 16, 16), lr=5e-3)
    )
    systems = run_benchmark(list(TargetSet.from_folder(index, "test")), open_segmenter(folder, "cpu")).to_json()[
        "systems"
    ]
    assert systems["box and click oracle"]["dice_kept"]["mean"] > 0.8
    with pytest.raises(UsageError, match="not empty"):
        train_segmenter(targets, folder, SegmenterRecipe(steps=1))


def test_the_commands_run_whole(index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net, figures = tmp_path / "net", tmp_path / "figures.json"

    def m3b(*words: str) -> int:
        import sys

        sys.argv = ["m3b", *words]
        with pytest.raises(SystemExit) as end:
            main()
        return int(end.value.code or 0)

    with opens_below(index) as opened_files:
        assert m3b("interactive", "train", str(index), str(net), "--minutes", "0.02", "--size", "32") == 0
        assert m3b("interactive", "bench", str(index), "--segmenter", str(net), "--limit", "2", "-o", str(figures)) == 0
    assert set(opened_files) <= {"Datapath/train.json", "Datapath/test.json", "Datapath/label_dict.json"}, (
        "the reader opens images"
    )
    printed = capsys.readouterr().out
    assert "2 targets of 2 patients" in printed
    assert "click oracle" in printed
    assert json.loads(figures.read_text())["systems"]["box oracle"]["episodes"] == 2
    assert m3b("interactive", "bench", str(net), "--segmenter", str(net)) == 2
    assert "holds no index" in capsys.readouterr().err
    assert (
        m3b(
            "segment",
            str(index / "0.png"),
            "the disk",
            "--segmenter",
            str(net),
            "-o",
            str(tmp_path / "o"),
            "--llm",
            "rules",
        )
        == 2
    )
    assert "takes no images" in capsys.readouterr().err


@pytest.mark.parametrize("dims", [2, 3])
def test_pixels_that_nobody_labelled_count_neither_as_target_nor_as_background(tmp_path: Path, dims: int) -> None:
    shape = (40, 50) if dims == 2 else (40, 50, 5)
    truth, ignored = np.zeros(shape, np.uint8), np.zeros(shape, np.uint8)
    truth[10:20, 10:30], ignored[15:25, 10:30] = 1, 1
    write_masked_case(tmp_path, truth, ignored)
    (target,) = TargetSet.from_folder(tmp_path, "test")
    assert int(target.truth.sum()) == 100
    full_mask = np.zeros((40, 50), bool)
    full_mask[10:25, 10:30] = True
    assert compute_overlap(target.clear_ignored(full_mask), target.truth) == (1.0, 1.0)
    episode = Episode(FixedMask(full_mask), target.image)
    prompt_from_truth(episode, target, SimulatedUser(box_first=True), np.random.default_rng(0))
    assert len(episode.turns) == 1, "no click corrects what is not known"
    assert EpisodeOutcome.from_episode(episode, target, stopped=True).delivered == (1.0, 1.0)
    (sample,) = prepare_samples([target] * MIN_TARGETS, 64)[:1]
    assert not sample.is_labelled[int(18 * 64 / 50), 20]
    assert sample.is_labelled[int(12 * 64 / 50), 20]
