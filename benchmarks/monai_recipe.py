"""Train the plain recipe of MONAI's tutorials, to which recipes.py compares: no plan, no clock-driven schedule.

    python monai_recipe.py PROJECT MINUTES OUT.npz

Runs in an assembled template project, whose readers and validation split it uses, so that only the training differs.

Classification ("MedNIST classification"): DenseNet121, Adam, rotations up to 15 degrees, flips and zooms of 10 %, cross-entropy
(binary for several labels), the epoch with the best validation AUROC; for grades, treated as classes, the best kappa.
Segmentation ("2D segmentation", "Spleen 3D"): a residual UNet of 16 to 256 filters, Dice loss, Adam, crops around marked and
unmarked voxels alike, flips and quarter turns (2D, 96 x 96) or none, 1.5 x 1.5 x 2 mm (3D), the epoch with the best validation
Dice, sliding windows that overlap by a half. Boxes in 2D images (MONAI's own detector needs torchvision): "Objects as points" (Zhou
et al., 2019) on the same residual UNet: a heat map a class and a size at every pixel of the whole image, focal loss and 0.1 L1,
Adam, flips, the epoch with the best validation mAP at IoU 0.5.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

SIDE = 128
"""Longest side of classified images on a processor, as in the template, since DenseNet121 is slow there. The minimum is half of it."""
CROP = {2: [96, 96], 3: [96, 96, 96]}


def main() -> None:
    project, minutes, out = Path(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3]).resolve()
    os.chdir(project)
    sys.path.insert(0, ".")
    torch.manual_seed(0)
    np.random.seed(0)
    plan, test = json.loads(Path("plan.json").read_text()), json.loads(Path("test.json").read_text())
    recipe = {"segmentation": segmentation, "detection": detection}.get(plan["task"], classification)
    np.savez_compressed(out, **recipe(plan, [record["image_path"] for record in test], minutes * 60))


def train(
    model: Any,
    learning_rate: float,
    step: Callable[[], torch.Tensor],
    epoch: int,
    valid: Callable[[], float],
    seconds: float,
) -> None:
    """Train with Adam until the seconds are over; keep the weights of the epoch with the best validation figure."""
    optimizer, start, best, best_weights = (
        torch.optim.Adam(model.parameters(), learning_rate),
        time.monotonic(),
        -1.0,
        None,
    )
    steps = scorings = 0
    while time.monotonic() - start < seconds:
        model.train()
        for _ in range(epoch):
            optimizer.zero_grad()
            step().backward()
            optimizer.step()
            steps += 1
            if time.monotonic() - start >= seconds:
                break
        model.eval()
        with torch.no_grad():
            figure = valid()
        scorings += 1
        if figure > best:
            best, best_weights = figure, {key: value.clone() for key, value in model.state_dict().items()}
    if best_weights:
        model.load_state_dict(best_weights)
    model.eval()
    print(f"recipe: {steps} steps, {scorings} scorings, best validation figure {best:.3f}", flush=True)


def classification(plan: dict[str, Any], paths: list[Any], seconds: float) -> dict[str, np.ndarray]:
    """Return probabilities (N, K) of the test images."""
    from monai.networks.nets import DenseNet121
    from monai.transforms import Compose, RandFlip, RandRotate, RandZoom

    from m3b.training.diagnosis.dataset import build_datasets
    from m3b.training.diagnosis.targets import get_target
    from m3b.training.preprocess import prepare_image
    from m3b.training.ranking_metrics import macro_auroc

    if plan["task"] == "regression":
        raise SystemExit("the recipe has no number to predict: compare diagnosis, grading, segmentation or boxes")
    dims, multi = int(plan["dims"]), bool(plan["multi_label"])
    plan |= {
        "size": [int(np.clip(side, SIDE // 2, SIDE)) for side in plan["size"]],
        "folds": 1,
        "refit": False,
        "workers": 0,
    }
    train_set, valid_set = build_datasets(plan)
    model = DenseNet121(spatial_dims=dims, in_channels=int(plan["channels"]), out_channels=len(plan["classes"]))
    augment = Compose([
        RandRotate(range_x=np.pi / 12, prob=0.5, keep_size=True), RandFlip(spatial_axis=0, prob=0.5),
        RandZoom(min_zoom=0.9, max_zoom=1.1, prob=0.5),
    ])  # fmt: skip
    loss = torch.nn.BCEWithLogitsLoss() if multi else torch.nn.CrossEntropyLoss()
    loader, source = torch.utils.data.DataLoader(train_set, 32, shuffle=True, drop_last=len(train_set) > 32), [iter(())]

    def step() -> torch.Tensor:
        items = next(source[0], None)
        if items is None:
            source[0] = iter(loader)
            items = next(source[0])
        pixels = torch.stack([torch.as_tensor(np.asarray(augment(image))) for image in items["pixel_values"]])
        result: torch.Tensor = loss(model(pixels), items["labels"])
        return result

    def answers(images: Any) -> np.ndarray:
        rows = [model(part) for part in torch.as_tensor(np.stack(images)).split(32)]
        logits = torch.cat(rows)
        return (logits.sigmoid() if multi else logits.softmax(1)).numpy()

    def valid() -> float:
        items = [valid_set[k] for k in range(len(valid_set))]
        truth = np.stack([item["labels"].numpy() for item in items])
        probabilities = answers([item["pixel_values"].numpy() for item in items])
        if plan["task"] == "grading":
            return float(get_target(plan).figures(np.log(np.maximum(probabilities, 1e-9)), truth, "mode")["qwk"])
        return macro_auroc(truth, probabilities)

    train(model, 1e-4, step, max(1, len(loader)), valid, seconds)
    with torch.no_grad():
        return {"scores": answers([prepare_image(path, plan) for path in paths])}


def segmentation(plan: dict[str, Any], paths: list[Any], seconds: float) -> dict[str, np.ndarray]:
    """Return a mask of each image on its own grid: `0`, `1`, ... in the order of the paths; ids, or channels if classes overlap."""
    import predict
    from monai.inferers import sliding_window_inference
    from monai.losses import DiceLoss
    from monai.networks.nets import UNet
    from monai.transforms import Compose, RandCropByPosNegLabeld, RandFlipd, RandRotate90d, SpatialPadd

    from m3b.training.channels import read_case
    from m3b.training.segmentation.dataset import build_datasets
    from m3b.training.segmentation.scoring import decide, dice_of, mean_dice
    from m3b.training.volume_cache import prepare_image

    dims, overlap, classes = int(plan["dims"]), bool(plan["overlap"]), len(plan["classes"])
    plan |= {"spacing": [1.5, 1.5, 2.0] if dims == 3 and plan["spacing"] else plan["spacing"], "workers": 0}
    train_set, valid_set = build_datasets(plan)
    volumes, rows, size = train_set.volumes, train_set.rows, CROP[dims]
    if dims == 3:  # small organs in small images: the crop is as large as they are, for four halvings
        largest = np.max([volumes.mask(int(row)).shape[-3:] for row in rows], axis=0)
        size = [int(min(side, -(-int(have) // 16) * 16)) for side, have in zip(size, largest, strict=True)]
    keys = ["image", "label"]
    turns = [RandFlipd(keys, 0.5, 0), RandRotate90d(keys, 0.5, spatial_axes=(0, 1))] if dims == 2 else []
    augment = Compose([
        SpatialPadd(keys, size), RandCropByPosNegLabeld(keys, "label", size, pos=1, neg=1, num_samples=4), *turns
    ])  # fmt: skip
    outputs = classes if overlap else classes + 1
    model = UNet(dims, int(plan["channels"]), outputs, (16, 32, 64, 128, 256), (2, 2, 2, 2), num_res_units=2)
    loss = DiceLoss(sigmoid=True) if overlap else DiceLoss(to_onehot_y=True, softmax=True)
    rng = np.random.default_rng(0)

    def step() -> torch.Tensor:
        row = int(rows[rng.integers(len(rows))])
        mask = np.array(volumes.mask(row))
        item = {"image": np.array(volumes.image(row), np.float32), "label": mask if overlap else mask[None]}
        parts = augment(item)
        pixels, labels = (torch.stack([torch.as_tensor(part[key]) for part in parts]) for key in keys)
        result: torch.Tensor = loss(model(pixels), labels)
        return result

    def predict_logits(image: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = sliding_window_inference(image[None], size, 4, model, overlap=0.5)[0]
        return logits

    def valid() -> float:
        sampled_cases = [valid_set[int(k)] for k in np.linspace(0, len(valid_set) - 1, min(24, len(valid_set)))]
        table = [
            dice_of(decide(predict_logits(case["pixel_values"]), overlap), case["labels"].numpy(), classes, overlap)
            for case in sampled_cases
        ]
        return mean_dice(np.array(table, float))

    train(model, 1e-3 if dims == 2 else 1e-4, step, max(20, len(rows)), valid, seconds)
    masks = {}
    with torch.no_grad():
        for index, path in enumerate(paths):
            image = read_case(path, plan)
            logits = predict_logits(torch.from_numpy(prepare_image(image, plan))).numpy()
            masks[str(index)] = predict.decide_at(logits, image.array.shape[1:], overlap)
    return masks


def detection(plan: dict[str, Any], paths: list[Any], seconds: float) -> dict[str, np.ndarray]:
    """Return boxes of each image in its file's coordinates: `0`, `1`, ... in the order of the paths, (N, 6): box, score, class."""
    import predict
    from monai.networks.nets import UNet

    from m3b.dataset.formats import read_image
    from m3b.training.detection.boxes import average_precision, rank_boxes
    from m3b.training.detection.dataset import build_datasets
    from m3b.training.volume_cache import prepare_image

    if plan["target"] != "boxes" or int(plan["dims"]) != 2:
        raise SystemExit("the recipe detects boxes in pictures only")
    classes = len(plan["classes"])
    train_set, valid_set = build_datasets({**plan, "folds": 1, "refit": False})
    cases = train_set.cases
    model = UNet(2, int(plan["channels"]), classes + 2, (16, 32, 64, 128, 256), (2, 2, 2, 2), num_res_units=2)
    torch.nn.init.constant_(list(model.parameters())[-1][:classes], -4.6)
    rng = np.random.default_rng(0)

    def step() -> torch.Tensor:
        losses = []
        for row in rng.choice(train_set.rows, 2):
            image, boxes = np.asarray(cases.image(int(row)), np.float32), cases.boxes[int(row)].copy()
            for axis in (0, 1):
                if rng.random() < 0.5:
                    image, side = np.flip(image, axis + 1), image.shape[axis + 1]
                    boxes[:, [axis, axis + 2]] = side - boxes[:, [axis + 2, axis]]
            losses.append(compute_points_loss(model(pad_sides(np.ascontiguousarray(image)))[0], boxes, classes))
        return torch.stack(losses).mean()

    def predict_boxes(image: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rows, columns = image.shape[1:]
        with torch.no_grad():
            return find_peaks(model(pad_sides(image))[0, :, :rows, :columns], classes)

    def valid() -> float:
        sampled_rows = [int(row) for row in valid_set.rows[:40]]
        answers = [predict_boxes(np.asarray(cases.image(row), np.float32)) for row in sampled_rows]
        truths = [(cases.boxes[row][:, :4], cases.boxes[row][:, 4].astype(int)) for row in sampled_rows]
        return float(np.nanmean([average_precision(*column) for column in rank_boxes(answers, truths, classes)]))

    train(model, 1e-3, step, max(20, len(train_set.rows) // 2), valid, seconds)
    result = {}
    for index, path in enumerate(paths):
        image = read_image(path)
        array = prepare_image(image, plan, str(path))
        boxes, scores, labels = predict_boxes(array)
        share = predict._share(image, array.shape[1:])
        corners = [predict._to_file(box * np.concatenate([share, share]), path, 2) for box in boxes]
        result[str(index)] = np.column_stack([np.array(corners).reshape(-1, 4), scores, labels])
    return result


def pad_sides(image: np.ndarray) -> torch.Tensor:
    """Pad (1, C, H, W) to sides that are divisible by 16."""
    rows, columns = image.shape[1:]
    return torch.nn.functional.pad(torch.from_numpy(image)[None], (0, -columns % 16, 0, -rows % 16))


def compute_points_loss(output: torch.Tensor, boxes: np.ndarray, classes: int) -> torch.Tensor:
    """Return the penalty-reduced focal loss of the heat maps (K + 2, H, W), plus 0.1 L1 of the log sizes at the boxes' centres."""
    heat, size = output[:classes].sigmoid().clamp(1e-4, 1 - 1e-4), output[classes:]
    grid = np.mgrid[: output.shape[1], : output.shape[2]]
    target, spots = np.zeros(heat.shape, np.float32), []
    for low_r, low_c, high_r, high_c, label in boxes:
        middle = [int((low_r + high_r) / 2), int((low_c + high_c) / 2)]
        middle = [min(middle[0], heat.shape[1] - 1), min(middle[1], heat.shape[2] - 1)]
        spread = max(1.0, min(high_r - low_r, high_c - low_c) / 6)
        gaussian = np.exp(-((grid[0] - middle[0]) ** 2 + (grid[1] - middle[1]) ** 2) / (2 * spread**2))
        target[int(label)] = np.maximum(target[int(label)], gaussian)
        spots.append((int(label), *middle, np.log(max(high_r - low_r, 1.0)), np.log(max(high_c - low_c, 1.0))))
    for label, row, column, _, _ in spots:
        target[label, row, column] = 1.0
    target_map = torch.from_numpy(target)
    focal_terms = torch.where(
        target_map == 1, (1 - heat) ** 2 * heat.log(), (1 - target_map) ** 4 * heat**2 * (1 - heat).log()
    )
    loss = -focal_terms.sum() / max(1, len(spots))
    for _, row, column, height, width in spots:
        loss = loss + 0.1 * (size[:, row, column] - torch.tensor([height, width])).abs().sum() / len(spots)
    return loss


def find_peaks(output: torch.Tensor, classes: int, max_boxes: int = 100) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return boxes (rows and columns of lower and upper corner), scores and classes of the highest peaks of the heat maps."""
    heat, size = output[:classes].sigmoid(), output[classes:].clamp(0, 7).exp()
    peak = torch.where(torch.nn.functional.max_pool2d(heat[None], 3, 1, 1)[0] == heat, heat, torch.zeros_like(heat))
    scores, positions = peak.flatten().topk(min(max_boxes, peak.numel()))
    label, spot = positions // heat[0].numel(), positions % heat[0].numel()
    row, column = spot // heat.shape[2], spot % heat.shape[2]
    half = size[:, row, column] / 2
    middle = torch.stack([row + 0.5, column + 0.5])
    return torch.cat([middle - half, middle + half]).T.numpy(), scores.numpy(), label.numpy()


if __name__ == "__main__":
    main()
