"""Teach a prompting agent from nothing: a vision-language model of random weights, expert trajectories, two stages.

    python benchmarks/teach_agent.py OUT [--figure FILE.svg]

The images are drawn (a bright disk in noise). The segmenter answers an ellipse in the box and paints or erases around clicks,
so a mask is as good as its prompts. The model has the architecture of Qwen3-VL and about 0.2 million weights. Stage one (TRL's
SFTTrainer on whole trajectories) ends with experts of both kinds, half with a box first, half with clicks alone. With two
turns, the box reaches a better mask; nobody tells the model. Stage two (TRL's GRPOTrainer) plays each episode through the tools.

Before, between and after, the model plays whole episodes in m3b's own loop on images that nothing was trained on. The script prints
the share of valid episodes (a prompt, no wrong call, ended by a stop or with the last turn), the mean reward and IoU, and the
rise of the reward by stage two on the same images with its 95 % interval; it draws the curve of stage two. A stage whose
folder exists is not repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # small networks gain nothing from threads
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "teaching"))

import numpy as np  # noqa: E402 - after the path and the threads
from toy_student import build  # noqa: E402 - likewise
from toy_world import Brush, targets  # noqa: E402 - likewise

from m3b.interactive.pictures import PictureStyle  # noqa: E402 - likewise
from m3b.interactive.prompting_metrics import mean_with_interval  # noqa: E402 - likewise
from m3b.teaching.chats import ChatRecord, read_chats  # noqa: E402 - likewise
from m3b.teaching.evaluation import EpisodeScore, compare_scores, play_episodes  # noqa: E402 - likewise
from m3b.teaching.expert_trajectories import TrajectoryFolder, make_trajectories, settings_of  # noqa: E402 - likewise
from m3b.teaching.experts import Expert, PromptMode  # noqa: E402 - likewise
from m3b.teaching.local_llm import LocalLLM  # noqa: E402 - likewise
from m3b.teaching.reinforced import ReinforcedRecipe, teach_reinforced  # noqa: E402 - likewise
from m3b.teaching.student_models import LoraSettings  # noqa: E402 - likewise
from m3b.teaching.supervised import SupervisedRecipe, teach_supervised  # noqa: E402 - likewise

STYLE = PictureStyle(32, rulers=False)
TURNS = 2
TRAIN_SEED, REINFORCED_SEED, HELD_OUT_SEED = 1, 5, 78
"""Seeds of the images of each stage, and of the images that are never trained on."""
SMOOTHING_STEPS = 15


def make_training_trajectories(out: Path, count: int, mode: PromptMode, min_iou: float) -> None:
    """Make expert trajectories on drawn images: a box first, or clicks alone, which reach less in two turns."""
    if (out / "summary.json").is_file():
        return
    expert = Expert((mode,), TURNS, min_gain=0.01, min_iou=min_iou, enough=0.93, jitter=0.06, tremor=0.5, look=STYLE)
    collection = TrajectoryFolder(out, settings_of("drawn", "brush", expert, 0.0))
    summary = make_trajectories(targets(count, TRAIN_SEED), Brush(), collection, expert, held_out=0.0).summary
    print(
        f"{summary['kept']} trajectories ({mode}), {summary['mean_turns']:.2f} masks, final IoU {summary['final_iou']:.3f}",
        flush=True,
    )


def is_trained(folder: Path) -> bool:
    return (folder / "taught.json").is_file()


def train_supervised(model: Path, chats: Sequence[ChatRecord], out: Path, steps: int, lr: float) -> None:
    """Train stage one, or a part of it."""
    if is_trained(out):
        return
    recipe = SupervisedRecipe(steps=steps, batch=16, accumulate=1, lr=lr, warm_up=0.1, adapters=LoraSettings(rank=0))
    teach_supervised(model, chats, out, recipe, on_message=print)


def train_reinforced(out: Path, steps: int, lr: float, minutes: float | None) -> None:
    """Train stage two: 8 episodes of each of 4 images a step."""
    if is_trained(out / "reinforced"):
        return
    recipe = ReinforcedRecipe(steps=steps, rollouts=8, targets=4, lr=lr, minutes=minutes, max_turns=TURNS, max_tokens=400, look=STYLE,
                              adapters=LoraSettings(rank=0))  # fmt: skip
    teach_reinforced(
        out / "supervised", targets(500, REINFORCED_SEED), Brush(), out / "reinforced", recipe, on_message=print
    )


def play_model(model: Path, count: int, temperature: float) -> list[EpisodeScore]:
    """Play whole episodes on images that nothing was trained on."""
    import torch

    torch.manual_seed(0)
    llm = LocalLLM(model, max_tokens=60, temperature=temperature)
    return play_episodes(targets(count, HELD_OUT_SEED), Brush(), llm, max_turns=TURNS, style=STYLE)


def format_scores(name: str, scores: Sequence[EpisodeScore]) -> str:
    patients = [episode.patient for episode in scores]
    reward = mean_with_interval([episode.score.total for episode in scores], patients)
    iou = float(np.mean([episode.outcome.delivered[1] for episode in scores]))
    first_iou = float(np.mean([episode.outcome.iou[0] if episode.outcome.iou else 0.0 for episode in scores]))
    masks = float(np.mean([len(episode.outcome.iou) for episode in scores]))
    return (f"{name:<26} {sum(episode.is_valid for episode in scores):>4} of {len(scores):<4} {format_figure(reward)}  "
            f"{first_iou:.3f}      {iou:.3f}      {masks:.2f}")  # fmt: skip


def format_figure(figure: dict[str, float | None]) -> str:
    if figure["low"] is None:  # every episode earned the same
        return f"{figure['mean']:.3f}"
    return f"{figure['mean']:.3f} ({figure['low']:.3f} to {figure['high']:.3f})"


def read_curve(folder: Path) -> np.ndarray:
    """Return (steps,): the mean reward of the episodes of each step."""
    rows = json.loads((folder / "taught.json").read_text(encoding="utf-8"))["curve"]
    return np.array([row["reward"] for row in rows if "reward" in row])


def draw_curve(curve: np.ndarray, file: Path) -> None:
    """Draw the mean reward by step, and its moving mean."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "m3b"
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
    axes.plot(np.arange(1, len(curve) + 1), curve, color="#9bb8d3", linewidth=0.8, label="mean of 32 episodes")
    kernel = np.ones(SMOOTHING_STEPS) / SMOOTHING_STEPS
    if len(curve) > SMOOTHING_STEPS:
        smooth = np.convolve(curve, kernel, "valid")
        axes.plot(np.arange(len(smooth)) + SMOOTHING_STEPS / 2 + 0.5, smooth, color="#1f4e79", linewidth=2,
                  label=f"moving mean of {SMOOTHING_STEPS} steps")  # fmt: skip
    axes.set(xlabel="step of stage two", ylabel="mean reward")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", frameon=False)
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--trajectories", type=int, default=1500)
    parser.add_argument("--steps", type=int, default=500, help="of stage one, on boxes")
    parser.add_argument("--both-steps", type=int, default=80, help="of stage one, on boxes and clicks")
    parser.add_argument("--lr", type=float, default=4e-3, help="of stage one")
    parser.add_argument("--rl-steps", type=int, default=40, help="of stage two")
    parser.add_argument("--rl-lr", type=float, default=6e-4, help="of stage two")
    parser.add_argument("--rl-minutes", type=float, help="end stage two after so many")
    parser.add_argument("--held-out", type=int, default=180, help="images to measure on")
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    out, started = options.out, time.process_time()
    out.mkdir(parents=True, exist_ok=True)
    if not (out / "model" / "config.json").is_file():
        build(out / "model")
    make_training_trajectories(out / "boxes", options.trajectories, "hybrid", 0.7)
    make_training_trajectories(out / "clicks", options.trajectories // 4, "points", 0.1)
    boxes, clicks = (list(read_chats(out / name)) for name in ("boxes", "clicks"))
    train_supervised(out / "model", boxes, out / "first", options.steps, options.lr)
    train_supervised(
        out / "first", [*boxes[: len(clicks)], *clicks], out / "supervised", options.both_steps, options.lr / 4
    )
    train_reinforced(out, options.rl_steps, options.rl_lr, options.rl_minutes)
    report_results(out, options.held_out, options.figure)
    print(f"{time.process_time() - started:.0f} s of one core")


def report_results(out: Path, count: int, figure: Path | None) -> None:
    """Measure and print, and draw the curve."""
    results: dict[str, Any] = {}
    print(f"\n{'':<26} {'valid':<12} {'mean reward (95 %)':<23} first IoU  last IoU   masks")
    for sampling, temperature in (("as sampled", 1.0), ("likeliest words", 0.0)):
        names = ("model", "supervised", "reinforced") if not temperature else ("supervised", "reinforced")
        scores_by_model = {name: play_model(out / name, count, temperature) for name in names}
        for name, model_scores in scores_by_model.items():
            print(format_scores(f"{name}, {sampling}", model_scores), flush=True)
        results[sampling] = compare_scores(scores_by_model["supervised"], scores_by_model["reinforced"])
        print(f"rise by stage two, {sampling}: {format_figure(results[sampling]['rise'])}\n")
    curve = read_curve(out / "reinforced")
    first = {
        name: sum(episode.calls[:1] == ("add_box",) for episode in model_scores)
        for name, model_scores in scores_by_model.items()
    }
    print("began with a box: " + ", ".join(f"{name} {episode_count}" for name, episode_count in first.items()))
    ends = {
        name: sum(episode.calls[-1:] == ("stop",) for episode in model_scores)
        for name, model_scores in scores_by_model.items()
    }
    print(
        "ended by a stop, not with the last turn: "
        + ", ".join(f"{name} {episode_count}" for name, episode_count in ends.items())
    )
    tenth = max(1, len(curve) // 10)
    print(f"mean reward while training: {curve[:tenth].mean():.3f} in the first {tenth} steps, "
          f"{curve[-tenth:].mean():.3f} in the last {tenth}")  # fmt: skip
    (out / "figures.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
    if figure is not None:
        draw_curve(curve, figure)


if __name__ == "__main__":
    main()
