"""The sets of BMAD that a folder holds, at every k, beside what was published; `benchmarks/fewshot.py bmad` runs it.

k = 0 is one set left out: adapters learn from the labelled part (`valid`) of every other set that is there, with the published
protocol from its test part as the published code does, and answer the set's test part. Each set has its own words.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from fewshot import PICTURES, Picked, cases_of, opened, plan_of

PUBLISHED = Path(__file__).with_name("fewshot_published.json")


def from_bmad(folder: Path, masks: bool) -> tuple[Picked, Picked]:
    """`valid` as the pool and `test` of one set: `{good,Ungood}/img`, masks in `anomaly_mask` under the same names."""
    return tuple(_side(folder / side, masks) for side in ("valid", "test"))  # type: ignore[return-value]


def _side(folder: Path, masks: bool) -> Picked:
    images, abnormal, marked = [], [], []
    for state in ("good", "Ungood"):
        place = folder / state / "img" if (folder / state / "img").is_dir() else folder / state
        for file in sorted(one for one in place.iterdir() if one.suffix.lower() in PICTURES):
            images.append(opened(file))
            abnormal.append(state == "Ungood")
            mask = folder / state / "anomaly_mask" / file.name
            marked.append(opened(mask) if mask.is_file() else np.zeros(images[-1].shape[:2], np.uint8))
    truth = [one if one.ndim == 2 else one.max(axis=-1) for one in marked] if masks else None
    return Picked(images, np.array(abnormal), [f"{folder}/{n}" for n in range(len(images))], truth)


def bmad(args: argparse.Namespace) -> None:
    """Every set that is there, at every k, beside what was published."""
    published = json.loads(PUBLISHED.read_text())["sets"]
    there = {name: known for name, known in published.items() if (args.file / f"{name}_AD").is_dir()}
    for name in published:
        if name not in there:
            print(f"{name}: not at hand ({args.file / f'{name}_AD'})")
    for name, known in there.items():
        args.object = known["object"]
        pool, test = from_bmad(args.file / f"{name}_AD", known["masks"])
        plan = plan_of(args, "masks" if known["masks"] else "states")
        ready = [cases_of(one, plan["backbone"]) for one in (pool, test)]
        for shots in args.shots:
            if shots == 0 and len(there) < 2:
                print(f"{name}, k = 0: no other set is at hand to learn from")
                continue
            draws = args.draws if shots else 1
            areas = [
                draw_of(plan, *ready, shots, seed, args.protocol)
                if shots
                else zero_shot(args, name, there, plan, ready[1])
                for seed in range(draws)
            ]
            print(told(name, shots, areas, known), flush=True)


def told(name: str, shots: int, areas: list[tuple[float, float]], known: dict[str, Any]) -> str:
    """Ours, with the spread over the draws, beside the published figure."""
    image, pixel = (np.array(column, float) for column in zip(*areas, strict=True))
    ours = f"{100 * image.mean():.2f}" + (f" +- {100 * image.std():.2f}" if len(areas) > 1 else "")
    ours += f" / {100 * pixel.mean():.2f}" if known["masks"] else ""
    return f"{name}, k = {shots}: ours {ours}; published (MVFA) {known['mvfa'].get(str(shots), 'none')}"


def figures(test: Any, image: np.ndarray, shown: np.ndarray) -> tuple[float, float]:
    """AUROC of images and of pixels (NaN without masks), at the size of the backbone's input."""
    from Utils.ranks import auroc

    truth = test.truths.numpy() > 0.5
    pixels = auroc(truth.ravel(), shown.ravel()) if test.masked else float("nan")
    return auroc(test.abnormal.numpy(), image), pixels


def draw_of(plan: dict[str, Any], pool: Any, test: Any, shots: int, seed: int, protocol: str) -> tuple[float, float]:
    """Figures of one draw of k examples a state."""
    import torch
    from Fewshot.build import build
    from Fewshot.crossed import taught
    from Fewshot.data import draw
    from Fewshot.fit import answers, finish, one_epoch
    from Fewshot.scoring import look, published

    torch.manual_seed(seed)
    part = pool.part(draw(pool, shots, seed))
    if protocol != "paper":
        return figures(test, *answers(taught(plan, part, 1e6, seed), test.pictures)[:2])  # type: ignore[arg-type]
    model: Any = build(plan)
    model.pixels = part.masked
    optimiser = torch.optim.Adam(model.adapters(part.masked), lr=1e-3, betas=(0.5, 0.999))
    best = (0.0, 0.0)
    for _ in range(int(plan["fewshot"]["epochs"])):
        one_epoch(model, part, plan, optimiser)
        banks, _, _ = finish(model, part, None)
        now = figures(test, *published(look(model, test.pictures, banks), part.masked))
        best = max(best, now, key=lambda one: float(np.nansum(one)))
    return best


def zero_shot(
    args: argparse.Namespace, left_out: str, there: dict[str, Any], plan: dict[str, Any], test: Any
) -> tuple[float, float]:
    """Figures of adapters that learnt from the other sets alone, each with its own words."""
    import torch
    from Fewshot.build import build
    from Fewshot.fit import one_epoch
    from Fewshot.scoring import look

    torch.manual_seed(0)
    others = []
    for name, known in there.items():
        if name != left_out:
            mine = plan_of(argparse.Namespace(**{**vars(args), "object": known["object"]}), "states")
            side = from_bmad(args.file / f"{name}_AD", known["masks"])[args.protocol == "paper"]
            others.append((cases_of(side, plan["backbone"]), words(build(mine))))
    model: Any = build(plan)
    own, masked = words(model), any(cases.masked for cases, _ in others)
    model.pixels = masked and test.masked
    rate = 1e-4 if args.protocol == "paper" else float(plan["fewshot"]["lr"])
    optimiser = torch.optim.Adam(model.adapters(masked), lr=rate, betas=(0.5, 0.999))
    best = (0.0, 0.0)
    for epoch in range(int(plan["fewshot"]["epochs"])):
        for cases, texts in others:
            say(model, texts)
            one_epoch(model, cases, plan, optimiser)
        say(model, own)
        if args.protocol == "paper" or epoch + 1 == int(plan["fewshot"]["epochs"]):
            looks = look(model, test.pictures, [])
            now = figures(test, looks["image"], looks["map"])
            best = max(best, now, key=lambda one: float(np.nansum(one)))
    return best


def words(model: Any) -> Any:
    """What stands for normal and abnormal, where texts say it; None where two vectors are learnt."""
    import torch

    return None if isinstance(model.texts, torch.nn.Parameter) else model.texts.clone()


def say(model: Any, texts: Any) -> None:
    """Put the words of a set in place."""
    if texts is not None:
        model.texts.copy_(texts)
