"""Choice between a 3D network, a 2D network on slices (`slice_encoder`), and their weighted mean.

plan.py proposes both for clips and thick slices. Both are trained within the minutes, and the weight with the lowest loss
on validation cases, which neither was trained on, is delivered. In simulations (`benchmarks/encoder_weights.py`) this came nearer to
the best weight than to keep the equal mean without a certain gain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from safetensors.torch import load_file, save_file

from m3b.training.diagnosis.classification import ClassTarget
from m3b.training.diagnosis.network import build_model
from m3b.training.diagnosis.targets import get_target
from m3b.training.diagnosis.views import view_count
from m3b.training.folds import DELIVERED_FILE, LOGOUT, WEIGHTS_FILE, list_network_names
from m3b.training.pretrained.plan_start import MIN_MINUTES_TO_COMPARE
from m3b.training.slice_encoder import BOTH, EQUAL_WEIGHT, SLICES, VOLUME, VolumeAndSlices, encoder_of

Plan = dict[str, Any]
MIN_ANISOTROPY = 3.0
"""Spacing between slices, in that within them, from which nnU-Net also trains a 2D network (Isensee et al., Nature Methods 2021)."""
WEIGHTS = (0.0, 0.25, EQUAL_WEIGHT, 0.75, 1.0)
"""Candidate weights of the slices."""
PARTS = {0.0: VOLUME, 1.0: SLICES}
"""Weight -> the only encoder that is delivered."""


# --- in the plan -------------------------------------------------------------------------------------------------------


def choose_encoder(facts: Mapping[str, Any], minutes: float) -> str:
    """Return `network.encoder` for volumes and clips."""
    return BOTH if _list_reasons(facts) and minutes >= MIN_MINUTES_TO_COMPARE and facts["views"] == 1 else VOLUME


def _list_reasons(facts: Mapping[str, Any]) -> list[str]:
    """Return why a 2D network may be better than a 3D one, in words."""
    spacing = facts["spacing"] or [1.0, 1.0, 1.0]
    return [
        *(["clips"] if facts["frames"] else []),
        *(["thick slices"] if spacing[2] >= MIN_ANISOTROPY * max(spacing[:2]) and not facts["frames"] else []),
    ]


def describe_encoder(facts: Mapping[str, Any], plan: Mapping[str, Any]) -> list[str]:
    """Return a line on what is trained on volumes or clips."""
    encoder, images = encoder_of(plan), "frames" if facts["frames"] else "slices"
    if int(plan["dims"]) != 3 or encoder == VOLUME:
        return []
    network = f"a 2D network on {images} with their neighbours as channels, pooled by attention"
    if encoder == SLICES:
        return [f"encoder: {network}"]
    reasons = f" ({', '.join(_list_reasons(facts))})" if _list_reasons(facts) else ""
    return [
        f"encoder: a 3D network and {network}{reasons}; validation weighs them, the better one or both are delivered"
    ]


def check_encoder(plan: Mapping[str, Any]) -> None:
    """Raise SystemExit if the plan's images or pretrained weights do not allow its encoder."""
    encoder, network = encoder_of(plan), plan["network"]
    setting, config = f"--set network.encoder={encoder}", network.get("config") or {}
    if encoder != VOLUME and int(plan["dims"]) != 3:
        raise SystemExit(f"{setting}: it is for volumes and clips, these are 2D images")
    if encoder != VOLUME and view_count(plan) > 1:
        raise SystemExit(f"{setting}: cases of several views are not served")
    if encoder == BOTH and config:
        raise SystemExit(f"{setting}: both networks start at random; pretrained weights go with slices or volume")
    if encoder == SLICES and config and int(config.get("dims") or 0) != 2:
        raise SystemExit(f"{setting}: needs pretrained weights of 2D images from the registry (`m3b models list`)")


# --- after the training --------------------------------------------------------------------------------------------------


def weigh_encoders(plan: Plan, results: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], Plan]:
    """Return the results with the logits of what is delivered, and the choice with its figures; {} for one encoder.

    If one encoder is delivered alone, its weights of each network are in `DELIVERED_FILE`.

    Args:
        results: of the folds, whose `logits` and `seen` are (encoders, N, K).
    """
    choice: Plan = {}
    if len(results[0]["logits"]) > 1:
        volume, slices = (np.concatenate([result["logits"][part] for result in results]) for part in (0, 1))
        labels = np.concatenate([result["labels"] for result in results])
        networks = np.repeat(np.arange(len(results)), [len(result["labels"]) for result in results])
        choice = choose_weight(get_target(plan), (volume, slices), labels, networks)
        print(f"encoder: {choice['description']}", flush=True)
        if part := PARTS.get(choice["weight"]):
            _keep_part(plan, part)
    weight = choice.get("weight", 0.0)

    def average(parts: np.ndarray) -> np.ndarray:
        return np.asarray((1 - weight) * parts[0] + weight * parts[-1], parts.dtype)

    return [
        {**result, "logits": average(result["logits"]), "seen": average(result["seen"])} for result in results
    ], choice


def choose_weight(
    target: ClassTarget,
    logits: tuple[np.ndarray, np.ndarray],
    labels: np.ndarray,
    networks: np.ndarray,
) -> Plan:
    """Return the weight of the slices, with losses, the watched figures, and `description`.

    Args:
        logits: (N, K) of the 3D network and of that on slices.
        networks: (N,) the fold that predicted each case.
    """
    mixtures = {weight: (1 - weight) * logits[0] + weight * logits[1] for weight in WEIGHTS}
    losses = {weight: target.view_loss(mixture, labels) for weight, mixture in mixtures.items()}
    weight = min(WEIGHTS, key=lambda weight: (losses[weight], abs(weight - EQUAL_WEIGHT)))
    figures = {
        name: round(float(target.figures(mixtures[value], labels, networks)[target.watch]), 4)
        for name, value in ((VOLUME, 0.0), (SLICES, 1.0), ("delivered", weight))
    }
    delivered = {0.0: "the 3D network alone", 1.0: "the 2D network on slices alone"}.get(
        weight, f"{1 - weight:g} 3D network + {weight:g} 2D network on slices"
    )
    return {
        "weight": weight,
        "watch": target.watch,
        **figures,
        "loss_volume": round(losses[0.0], 4),
        "loss_slices": round(losses[1.0], 4),
        "loss_delivered": round(losses[weight], 4),
        "description": f"{delivered}; validation {target.watch} {figures[VOLUME]:.3f} of the 3D network, {figures[SLICES]:.3f} on "
        f"slices, {figures['delivered']:.3f} of what is delivered",
    }


def _keep_part(plan: Plan, part: str) -> None:
    """Write the weights of each network without those of the other encoder."""
    modules = build_model(plan, with_loss=False).named_modules()
    prefix = next(name for name, module in modules if isinstance(module, VolumeAndSlices)) + "."
    for name in list_network_names(plan):
        state = load_file(str(LOGOUT / name / WEIGHTS_FILE))
        kept = {
            key.replace(f"{prefix}{part}.", prefix, 1): value
            for key, value in state.items()
            if not key.startswith(prefix) or key.startswith(f"{prefix}{part}.")
        }
        save_file(kept, str(LOGOUT / name / DELIVERED_FILE))


def apply_chosen_encoder(plan: Plan, choice: Plan | None) -> Plan:
    """Return the plan of the deliverable, with the encoder that validation chose and its figures in `encoders`."""
    if not choice:
        return plan
    network = {**plan["network"], "encoder": PARTS.get(choice["weight"], BOTH), "slice_weight": choice["weight"]}
    return {**plan, "network": network, "encoders": choice}
