"""Measure the sets of BMAD in a folder at every k, next to the published figures; run by `benchmarks/fewshot.py bmad`.

k = 0 leaves one set out: adapters learn from the labelled part (`valid`) of every other set (with the published
protocol from its test part, as the published code does) and predict the set's test part. Each set has its own texts.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from fewshot import PICTURES, PictureSet, make_plan, read_picture, to_template_cases

PUBLISHED = Path(__file__).with_name("fewshot_published.json")


def from_bmad(folder: Path, masks: bool) -> tuple[PictureSet, PictureSet]:
    """Return `valid` as the pool and `test` of one set: `{good,Ungood}/img`, masks in `anomaly_mask` under the same names."""
    return tuple(_read_part(folder / side, masks) for side in ("valid", "test"))  # type: ignore[return-value]


def _read_part(folder: Path, masks: bool) -> PictureSet:
    images, abnormal, mask_images = [], [], []
    for state in ("good", "Ungood"):
        image_folder = folder / state / "img" if (folder / state / "img").is_dir() else folder / state
        for file in sorted(entry for entry in image_folder.iterdir() if entry.suffix.lower() in PICTURES):
            images.append(read_picture(file))
            abnormal.append(state == "Ungood")
            mask = folder / state / "anomaly_mask" / file.name
            mask_images.append(read_picture(mask) if mask.is_file() else np.zeros(images[-1].shape[:2], np.uint8))
    truth = [entry if entry.ndim == 2 else entry.max(axis=-1) for entry in mask_images] if masks else None
    return PictureSet(images, np.array(abnormal), [f"{folder}/{n}" for n in range(len(images))], truth)


def run_bmad(args: argparse.Namespace) -> None:
    """Measure every set in the folder, at every k, next to the published figures."""
    combine_as_published = json.loads(PUBLISHED.read_text())["sets"]
    available_sets = {
        name: set_info for name, set_info in combine_as_published.items() if (args.file / f"{name}_AD").is_dir()
    }
    for name in combine_as_published:
        if name not in available_sets:
            print(f"{name}: not at hand ({args.file / f'{name}_AD'})")
    for name, set_info in available_sets.items():
        args.object = set_info["object"]
        pool, test = from_bmad(args.file / f"{name}_AD", set_info["masks"])
        plan = make_plan(args, "masks" if set_info["masks"] else "states")
        parts = (("valid", pool), ("test", test))
        prepared = [to_template_cases(part, plan, args.cache / f"{name}-{side}") for side, part in parts]
        for shots in args.shots:
            if shots == 0 and len(available_sets) < 2:
                print(f"{name}, k = 0: no other set is at hand to learn from")
                continue
            draws = args.draws if shots else 1
            areas = [
                score_draw(plan, *prepared, shots, seed, args.protocol)
                if shots
                else score_zero_shot(args, name, available_sets, plan, prepared[1])
                for seed in range(draws)
            ]
            print(format_figures(name, shots, areas, set_info), flush=True)


def format_figures(name: str, shots: int, areas: list[tuple[float, float]], set_info: dict[str, Any]) -> str:
    """Format the measured figures, with the spread over the draws, next to the published one."""
    image, pixel = (np.array(column, float) for column in zip(*areas, strict=True))
    own_text = f"{100 * image.mean():.2f}" + (f" +- {100 * image.std():.2f}" if len(areas) > 1 else "")
    own_text += f" / {100 * pixel.mean():.2f}" if set_info["masks"] else ""
    return f"{name}, k = {shots}: ours {own_text}; published (MVFA) {set_info['mvfa'].get(str(shots), 'none')}"


def compute_figures(test: Any, image: np.ndarray, pixel_scores: np.ndarray) -> tuple[float, float]:
    """Return figures of images and of pixels (NaN without masks), at the size of the backbone's input."""
    from m3b.training.detection.fewshot.scoring import enlarge_map
    from m3b.training.ranking_metrics import auroc

    pixels = float("nan")
    if test.masked:
        truth = np.stack(list(test.masks()))
        scores = np.stack([enlarge_map(values, truth.shape[1:], align_corners=True) for values in pixel_scores])
        pixels = auroc(truth.ravel(), scores.ravel())
    return auroc(test.abnormal.numpy(), image), pixels


def score_draw(plan: dict[str, Any], pool: Any, test: Any, shots: int, seed: int, protocol: str) -> tuple[float, float]:
    """Return the figures of one draw of k examples a state."""
    import torch

    from m3b.training.detection.fewshot.build import build_network
    from m3b.training.detection.fewshot.cross_fitting import fit_cross
    from m3b.training.detection.fewshot.data import draw_examples
    from m3b.training.detection.fewshot.fitting import fit_calibration, predict_images, train_epoch
    from m3b.training.detection.fewshot.scoring import combine_as_published, compute_signals

    torch.manual_seed(seed)
    part = pool.part(draw_examples(pool, shots, seed))
    if protocol != "paper":
        return compute_figures(test, *predict_images(fit_cross(plan, part, 1e6, seed), test)[:2])  # type: ignore[arg-type]
    model: Any = build_network(plan)
    model.pixels = part.masked
    optimiser = torch.optim.Adam(model.adapters(part.masked), lr=1e-3, betas=(0.5, 0.999))
    best = (0.0, 0.0)
    for _ in range(int(plan["fewshot"]["epochs"])):
        train_epoch(model, part, plan, optimiser)
        banks, _, _ = fit_calibration(model, part, None)
        signals = compute_signals(model, test.input_batches(), banks)
        current = compute_figures(test, *combine_as_published(signals, part.masked))
        best = max(best, current, key=lambda pair: float(np.nansum(pair)))
    return best


def score_zero_shot(
    args: argparse.Namespace, excluded_set: str, available_sets: dict[str, Any], plan: dict[str, Any], test: Any
) -> tuple[float, float]:
    """Return the figures of adapters that learnt only from the other sets, each with its own texts."""
    import torch

    from m3b.training.detection.fewshot.build import build_network
    from m3b.training.detection.fewshot.fitting import train_epoch
    from m3b.training.detection.fewshot.scoring import compute_signals

    torch.manual_seed(0)
    other_sets = []
    for name, set_info in available_sets.items():
        if name != excluded_set:
            other_plan = make_plan(argparse.Namespace(**{**vars(args), "object": set_info["object"]}), "states")
            side = from_bmad(args.file / f"{name}_AD", set_info["masks"])[args.protocol == "paper"]
            folder = args.cache / f"{name}-{'test' if args.protocol == 'paper' else 'valid'}"
            other_cases = to_template_cases(
                side, {**plan, "target": "masks" if set_info["masks"] else "states"}, folder
            )
            other_sets.append((other_cases, get_texts(build_network(other_plan))))
    model: Any = build_network(plan)
    own_texts, masked = get_texts(model), any(cases.masked for cases, _ in other_sets)
    model.pixels = masked and test.masked
    rate = 1e-4 if args.protocol == "paper" else float(plan["fewshot"]["lr"])
    optimiser = torch.optim.Adam(model.adapters(masked), lr=rate, betas=(0.5, 0.999))
    best = (0.0, 0.0)
    for epoch in range(int(plan["fewshot"]["epochs"])):
        for cases, texts in other_sets:
            set_texts(model, texts)
            train_epoch(model, cases, plan, optimiser)
        set_texts(model, own_texts)
        if args.protocol == "paper" or epoch + 1 == int(plan["fewshot"]["epochs"]):
            looks = compute_signals(model, test.input_batches(), [])
            current = compute_figures(test, looks["image"], looks["map"])
            best = max(best, current, key=lambda pair: float(np.nansum(pair)))
    return best


def get_texts(model: Any) -> Any:
    """Return the texts for normal and abnormal; None if two learnt vectors replace them."""
    import torch

    return None if isinstance(model.texts, torch.nn.Parameter) else model.texts.clone()


def set_texts(model: Any, texts: Any) -> None:
    """Set the texts of a set."""
    if texts is not None:
        model.texts.copy_(texts)
