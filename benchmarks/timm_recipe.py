"""Fine-tune a network of timm with timm's own augmentation and optimiser, as an opponent of the templates in recipes.py.

    python timm_recipe.py PROJECT MINUTES OUT.npz [WEIGHTS]

ResNet-18 from random weights, or, with WEIGHTS (a folder of DINOv2's ViT-S/14 in the layout of transformers), that ViT.
RandAugment, random crops and erasing, AdamW (for the ViT with rates that fall by 0.75 a layer), warm-up and a cosine by the
clock, label smoothing 0.1, the largest input of 224, 168 and 112 pixels that allows five epochs, and the weights with the
best of ten validation figures (AUROC, or kappa of grades).
"""

from __future__ import annotations

import json
import math
import re
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from PIL import Image
from safetensors.torch import load_file
from sklearn.metrics import cohen_kappa_score, roc_auc_score
from timm.data import create_transform
from timm.optim import create_optimizer_v2

BATCH, TRIAL, SIDES, EPOCHS, SCORINGS = 16, 4, (224, 168, 112), 5, 10
WARM_UP = 0.1


def main() -> None:
    project, seconds, weights = Path(sys.argv[1]), 60 * float(sys.argv[2]), (sys.argv[4:] or [""])[0]
    start = time.monotonic()
    torch.manual_seed(0)
    plan, arrays = json.loads((project / "plan.json").read_text()), np.load(project / "found" / "arrays.npz")
    images = {name: arrays[f"images_{name}"] for name in ("train", "valid", "test")}
    labels = torch.from_numpy(arrays["labels_train"]).float()
    model = (
        build_vit(weights, labels.shape[1]) if weights else timm.create_model("resnet18", num_classes=labels.shape[1])
    )
    side = choose_side(model, len(labels), seconds)
    augment = create_transform(
        side, is_training=True, scale=(0.5, 1.0), auto_augment="rand-m6-mstd0.5-inc1", re_prob=0.25
    )
    optimizer = create_optimizer_v2(
        model, "adamw", lr=3e-4 if weights else 1e-3, weight_decay=0.05, layer_decay=0.75 if weights else None
    )
    rates = [group["lr"] for group in optimizer.param_groups]
    loss = torch.nn.BCEWithLogitsLoss() if plan["multi_label"] else torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    best, best_weights, scored, steps, order = -1.0, model.state_dict(), 0, 0, torch.empty(0, dtype=torch.long)
    while (progress := (time.monotonic() - start) / seconds) < 1:
        if len(order) < min(BATCH, len(labels)):
            order = torch.randperm(len(labels))
        rows, order = order[:BATCH], order[BATCH:]
        share = min(1.0, progress / WARM_UP) * (1 + math.cos(math.pi * progress)) / 2
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * share * group.get("lr_scale", 1.0)
        pixels = torch.stack([augment(Image.fromarray(images["train"][row])) for row in rows.tolist()])
        optimizer.zero_grad()
        loss(model.train()(pixels), labels[rows]).backward()
        optimizer.step()
        steps += 1
        if (time.monotonic() - start) / seconds * SCORINGS > scored + 1:
            scored, figure = (
                scored + 1,
                score(plan, predict(model, images["valid"], side, plan), arrays["labels_valid"]),
            )
            if figure > best:
                best, best_weights = figure, {key: value.clone() for key, value in model.state_dict().items()}
    model.load_state_dict(best_weights)
    print(f"timm: {steps} steps of {BATCH} at {side} pixels, best validation figure {best:.3f}", flush=True)
    np.savez_compressed(sys.argv[3], scores=predict(model, images["test"], side, plan))


def choose_side(model: Any, cases: int, seconds: float) -> int:
    """Return the largest input that allows enough epochs, estimated from a step of the smallest; the smallest if none does."""
    for _ in range(2):  # the first one warms up
        start = time.monotonic()
        model.train()(torch.randn(TRIAL, 3, SIDES[-1], SIDES[-1])).sum().backward()
    epoch = (time.monotonic() - start) * cases / TRIAL
    return next((side for side in SIDES if EPOCHS * epoch * (side / SIDES[-1]) ** 2 < seconds), SIDES[-1])


def build_vit(folder: str, classes: int) -> Any:
    """Build timm's ViT-S/14 with the tensors of transformers' Dinov2Model."""
    state = load_file(Path(folder, "model.safetensors"))
    renamed = {}
    for name, value in state.items():
        for pattern, new in (
            (r"^embeddings\.cls_token", "cls_token"), (r"^embeddings\.position_embeddings", "pos_embed"),
            (r"^embeddings\.patch_embeddings\.projection", "patch_embed.proj"), (r"^encoder\.layer", "blocks"),
            (r"attention\.output\.dense", "attn.proj"), (r"layer_scale(\d)\.lambda1", r"ls\1.gamma"), (r"^layernorm", "norm"),
        ):  # fmt: skip
            name = re.sub(pattern, new, name)
        renamed[name] = value
    for name in [name for name in renamed if ".attention.attention.query." in name]:
        parts = [renamed.pop(name.replace("query", part)) for part in ("query", "key", "value")]
        renamed[name.replace("attention.attention.query", "attn.qkv")] = torch.cat(parts)
    model = timm.create_model(
        "vit_small_patch14_dinov2", num_classes=classes, dynamic_img_size=True, drop_path_rate=0.1
    )
    missing, surplus = model.load_state_dict(renamed, strict=False)
    if surplus or set(missing) - {"head.weight", "head.bias"}:
        raise SystemExit(f"{folder} is no ViT-S/14 of DINOv2: {surplus[:1]} {missing[:1]}")
    return model


def predict(model: Any, images: np.ndarray, side: int, plan: dict[str, Any]) -> np.ndarray:
    """Return probabilities (N, K)."""
    transform, rows = create_transform(side, is_training=False, crop_pct=1.0), []
    with torch.no_grad():
        for part in np.array_split(images, max(1, len(images) // BATCH)):
            logits = model.eval()(torch.stack([transform(Image.fromarray(image)) for image in part]))
            rows.append(logits.sigmoid() if plan["multi_label"] else logits.softmax(1))
    return torch.cat(rows).numpy()


def score(plan: dict[str, Any], found: np.ndarray, truth: np.ndarray) -> float:
    """Return the quadratic kappa of grades, else the mean AUROC of the classes that occur."""
    if plan["task"] == "grading":
        return float(cohen_kappa_score(truth.argmax(1), found.argmax(1), weights="quadratic"))
    columns = [k for k in range(truth.shape[1]) if 0 < truth[:, k].sum() < len(truth)]
    return float(np.mean([roc_auc_score(truth[:, k], found[:, k]) for k in columns]))


if __name__ == "__main__":
    main()
