"""Choice, fit and weight of a classifier's linear probe: see `linear_probe`.

The regularisation of the linear layer and the weight of the probe are those with the lowest loss on validation cases, which neither
network nor probe was trained on. Both are also chosen on four of five groups of patients for the fifth: the probe is delivered if the
loss of these predictions is lower than without it by more than two standard errors over patients.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from m3b.training.diagnosis.candidate_gain import measure_gain
from m3b.training.diagnosis.classification import ClassTarget
from m3b.training.diagnosis.linear_probe import (
    BACKBONE_FILE,
    CHANNELS,
    LinearProbe,
    describe_mixture,
    has_linear_probe,
)
from m3b.training.diagnosis.network import count_outputs
from m3b.training.diagnosis.targets import get_target
from m3b.training.diagnosis.views import view_count
from m3b.training.folds import (
    DELIVERED_FILE,
    LOGOUT,
    REFIT_FOLD,
    REFIT_NAME,
    count_folds,
    find_weights,
)
from m3b.training.machine import machine_of
from m3b.training.patients import list_patients
from m3b.training.precision import device_of
from m3b.training.pretrained.backbones import build_backbone
from m3b.training.pretrained.frozen_features import FEATURE_SHARE, FEATURE_SIDES, time_image
from m3b.training.pretrained.plan_start import NO_START
from m3b.training.pretrained.starts import find_start, list_suitable
from m3b.training.pretrained.weight_files import StartError
from m3b.training.recipe import get_recipe
from m3b.training.stored_networks import PROBE_PREFIX

Plan = dict[str, Any]
FEATURES_FILE = LOGOUT / "linear_probe_features.npz"
NATIVE_SIDE = 224
"""Side to which small images are enlarged: that of the images which most networks were trained on."""
STRENGTHS = np.geomspace(10, 1e-3, 9)
"""Candidate factors of half the squared weights in the loss, for standardised features; from strong to weak."""
WEIGHTS = np.arange(11) / 10
"""Candidate weights of the probe."""
MAX_ITERATIONS = 100
GROUPS = 5
"""Groups of patients; strength and weight for each are chosen on the others."""
GAIN_ERRORS = 2.0
"""Minimum reduction of the loss in its standard errors."""
MIN_PATIENTS = 10
"""Validation patients without whom no probe is delivered."""
MAX_CASES = 1000
"""Maximum validation cases for the choice, evenly spaced."""


# --- in the plan -------------------------------------------------------------------------------------------------------


def choose_linear_probe(plan: Plan, cases: int) -> list[str]:
    """Choose the pretrained network and the input of the plan's probe; return a line on it.

    `linear_probe.weights` is `auto` for the first fetched weights that suit the images and the minutes, `none`, or NAME or DIR.

    Raises:
        SystemExit: the requested weights cannot be used; says why.
    """
    weights = str(plan["linear_probe"]["weights"])
    plan["linear_probe"] = {"weights": weights}
    if weights.lower() in NO_START:
        plan["linear_probe"]["weights"] = "none"
        return []
    is_requested = weights != "auto"
    has_fixed_channels = plan["channels"] in (1, CHANNELS) and not plan.get("channel_names")
    if plan["dims"] != 2 or not has_fixed_channels:
        if is_requested:
            raise SystemExit(
                f"--set linear_probe.weights={weights}: it is for 2D images of one or three unnamed channels, these are "
                f"{plan['dims']}D with {plan['channels']} channels"
            )
        return []
    if is_requested:
        try:
            return [_use_weights(plan, weights, cases, is_requested)]
        except (StartError, OSError) as error:
            raise SystemExit(f"--set linear_probe.weights={weights}: {error}") from error
    if plan["network"].get("pretrained") or machine_of(plan).is_remote:
        return []
    lines = []
    for name in (name for name, is_fetched in list_suitable(2, str(plan["task"]), False).items() if is_fetched):
        try:
            lines.append(_use_weights(plan, name, cases, is_requested))
        except (StartError, OSError) as error:
            lines.append(f"no linear probe of {name}: {error}")
        if has_linear_probe(plan):
            break
    return lines


def _use_weights(plan: Plan, weights: str, cases: int, is_requested: bool) -> str:
    """Let the probe use the weights if its features can be computed in time, or in any case if they are requested."""
    start = find_start(weights, str(plan["task"]), 2)
    network = {**start.network, "backbone_lr": 0}
    build_backbone(network, 2, CHANNELS)  # raises what is wrong with the files
    images, available_seconds = cases * view_count(plan), FEATURE_SHARE * 60 * float(plan["minutes"])
    name, side, seconds = start.entry["name"], 0, float("inf")
    for side in (side for side in FEATURE_SIDES if side <= max(NATIVE_SIDE, *plan["size"])):
        input_plan = {"network": network, "dims": 2, "channels": CHANNELS, "size": [side, side], "precision": "fp32"}
        seconds = images * time_image(input_plan, device_of(plan))
        if seconds <= available_seconds:
            break
    if seconds > available_seconds and not is_requested:
        return f"no linear probe of {name}: features of {images} images would take {seconds:.0f} s of these minutes"
    scale = start.intensity(plan["intensity"])
    plan["linear_probe"] |= {
        "pretrained": network["pretrained"],
        "config": network["config"],
        "origin": network["origin"],
        "size": [side, side],
        "seconds": round(seconds, 1),
        **({} if "mode" in scale else scale),
    }
    return (
        f"linear probe: frozen {name} features (licence: {start.entry['licence']}) of {images} images at {[side, side]}, about "
        f"{seconds:.0f} s; train.py delivers it with the network if that lowers the validation loss"
    )


# --- in the training -----------------------------------------------------------------------------------------------------


@torch.no_grad()
def compute_probe_features(plan: Plan) -> float:
    """Compute the features of the cases of all networks, unless an earlier start did; return the seconds that they took."""
    if not has_linear_probe(plan):
        return 0.0
    if not FEATURES_FILE.exists():
        start, device, recipe = time.monotonic(), device_of(plan), get_recipe()
        probe = LinearProbe(plan, load=True).to(device).eval()
        folds = [*range(count_folds(plan)), *([REFIT_FOLD] if plan.get("refit") else [])]
        features: list[np.ndarray] = []
        rows: dict[int, None] = {}
        for dataset in (part for fold in folds for part in recipe.build_datasets(plan, fold)):
            item_of_row = {int(row): item for item, row in enumerate(dataset.rows)}
            new_rows = [row for row in item_of_row if row not in rows]
            rows |= dict.fromkeys(new_rows)
            subset = torch.utils.data.Subset(dataset, [item_of_row[row] for row in new_rows])
            for items in torch.utils.data.DataLoader(subset, batch_size=8):
                tensors = [items[key].to(device) for key in ("pixel_values", "views") if key in items]
                features.append(probe.extract_features(*tensors).float().cpu().numpy())
        save_file(probe.backbone.state_dict(), str(LOGOUT / BACKBONE_FILE))
        part = FEATURES_FILE.with_suffix(".part.npz")
        np.savez(part, features=np.concatenate(features), rows=list(rows), seconds=time.monotonic() - start)
        os.replace(part, FEATURES_FILE)
    return float(np.load(FEATURES_FILE)["seconds"])


def read_probe_features() -> dict[int, np.ndarray]:
    """Return row of train.json -> features (D,)."""
    table = np.load(FEATURES_FILE)
    return dict(zip(table["rows"].tolist(), table["features"], strict=True))


def add_linear_probe(plan: Plan, results: Sequence[dict[str, Any]], logits: np.ndarray) -> tuple[np.ndarray, Plan]:
    """Return (N, K) logits of the delivered model for the validation cases of all folds, and what was chosen; {} without a probe.

    If the probe is delivered, the weights of each network with its linear layer are in `DELIVERED_FILE`.

    Args:
        results: of the folds, with `cases` and `labels` of their validation parts.
        logits: of the networks for these cases.
    """
    if not has_linear_probe(plan):
        return logits, {}
    recipe, features = get_recipe(), read_probe_features()
    training_sets = {f"fold{fold}": recipe.build_datasets(plan, fold)[0] for fold in range(len(results))}
    if plan.get("refit"):
        training_sets[REFIT_NAME] = recipe.build_datasets(plan, REFIT_FOLD)[0]
    loss, heads = recipe.build_loss(plan), {}
    for name, cases in training_sets.items():
        rows = np.stack([features[int(row)] for row in cases.rows])
        heads[name] = fit_heads(rows, cases.labels[cases.rows], loss, count_outputs(plan))
    valid_rows = [np.stack([features[int(row)] for row in result["cases"].rows]) for result in results]
    probe_logits = np.concatenate(
        [apply_heads(heads[f"fold{fold}"], rows) for fold, rows in enumerate(valid_rows)], axis=1
    )
    labels = np.concatenate([result["labels"] for result in results])
    patients = list_patients([record for result in results for record in result["cases"].records])
    strength, choice = choose_mixture(get_target(plan), logits, probe_logits, labels, patients)
    rule = {**plan["linear_probe"], **choice}
    print(f"linear probe: {_describe_choice(rule)}", flush=True)
    if not choice["weight"]:
        return logits, choice
    for name, candidates in heads.items():
        state = load_file(str(find_weights(name)))
        head = torch.from_numpy(candidates[strength])
        state |= {PROBE_PREFIX + "weight": head[:, :-1].contiguous(), PROBE_PREFIX + "bias": head[:, -1].contiguous()}
        save_file(state, str(LOGOUT / name / DELIVERED_FILE))
    mixture = (1 - choice["weight"]) * logits + choice["weight"] * probe_logits[strength]
    return mixture.astype(logits.dtype), choice


def _describe_choice(rule: Plan) -> str:
    result = describe_mixture(rule) if rule["weight"] else f"not delivered, no certain gain by {rule['origin']['name']}"
    return (
        f"{result}: validation loss {rule['loss_mixture']} (cross-fitted), {rule['loss_network']} of the network, "
        f"{rule['loss_probe']} of the probe; standard error of the gain {rule['gain_error']}"
    )


def fit_heads(features: np.ndarray, labels: np.ndarray, loss: nn.Module, outputs: int) -> np.ndarray:
    """Return (STRENGTHS, outputs, D + 1): weights and bias of a linear layer on (N, D) features for each strength."""
    inputs, truth = torch.from_numpy(features).float(), torch.from_numpy(labels).float()
    mean, std = inputs.mean(0), inputs.std(0, correction=0).clamp_min(1e-6)
    inputs = (inputs - mean) / std
    weight = torch.zeros(outputs, inputs.shape[1], requires_grad=True)
    bias = torch.zeros(outputs, requires_grad=True)
    heads = []
    for strength in STRENGTHS:  # each starts from the solution of the stronger one
        optimizer = torch.optim.LBFGS([weight, bias], max_iter=MAX_ITERATIONS, line_search_fn="strong_wolfe")

        def compute_loss(optimizer: Any = optimizer, strength: float = strength) -> float:
            optimizer.zero_grad()
            value = loss(inputs @ weight.T + bias, truth) + 0.5 * strength * weight.square().sum()
            value.backward()
            return float(value.detach())

        optimizer.step(compute_loss)
        scaled = (weight / std).detach()
        heads.append(torch.cat([scaled, (bias.detach() - scaled @ mean)[:, None]], dim=1).numpy())
    return np.stack(heads)


def apply_heads(heads: np.ndarray, features: np.ndarray) -> np.ndarray:
    """Return (STRENGTHS, N, outputs) logits."""
    return np.asarray(features @ heads[:, :, :-1].transpose(0, 2, 1) + heads[:, None, :, -1])


def choose_mixture(
    target: ClassTarget, logits: np.ndarray, probe_logits: np.ndarray, labels: np.ndarray, patients: Sequence[str]
) -> tuple[int, dict[str, float]]:
    """Return the index of the strength, and `weight` of the probe with the losses; a weight of 0 if it is not delivered.

    Args:
        logits: (N, K) of the networks.
        probe_logits: (STRENGTHS, N, K).
    """
    rows = np.arange(0, len(labels), -(-len(labels) // MAX_CASES))
    logits, probe_logits, labels = logits[rows], probe_logits[:, rows], labels[rows]
    names, numbers = np.unique(np.array(patients)[rows], return_inverse=True)
    patient_of_case = np.random.default_rng(0).permutation(len(names))[numbers]
    groups = patient_of_case % GROUPS

    def choose(part: np.ndarray) -> tuple[int, float]:
        losses = [target.view_loss(candidate[part], labels[part]) for candidate in probe_logits]
        strength = int(np.argmin(losses))
        candidates = [mix(logits[part], probe_logits[strength, part], weight) for weight in WEIGHTS]
        return strength, float(
            WEIGHTS[np.argmin([target.view_loss(candidate, labels[part]) for candidate in candidates])]
        )

    strength, weight = choose(np.ones(len(rows), bool))
    # a probe that ignores the images: features of noise, which only scale and shift the logits, gain nothing
    constants = [mix(logits, probe_logits[strength].mean(axis=0), weight) for weight in WEIGHTS]
    without_probe = min(constants, key=lambda candidate: target.view_loss(candidate, labels))
    mixture = without_probe.copy()
    for group in range(GROUPS) if len(names) >= MIN_PATIENTS else ():
        part = groups == group
        group_strength, group_weight = choose(~part)
        mixture[part] = mix(logits[part], probe_logits[group_strength, part], group_weight)

    _, error = measure_gain(target, without_probe, mixture, labels, np.array(patients)[rows].tolist())
    figures = {
        "loss_network": target.view_loss(without_probe, labels),
        "loss_probe": target.view_loss(probe_logits[strength], labels),
        "loss_mixture": target.view_loss(mixture, labels),
        "gain_error": error,
    }
    is_better = figures["loss_network"] - figures["loss_mixture"] > GAIN_ERRORS * error
    rounded = {name: round(value, 4) for name, value in figures.items()}
    return strength, {"weight": weight if is_better else 0.0, "strength": float(STRENGTHS[strength]), **rounded}


def mix(logits: np.ndarray, probe_logits: np.ndarray, weight: float) -> np.ndarray:
    """Return the weighted mean of the logits of the networks and of the probe."""
    return np.asarray((1 - weight) * logits + weight * probe_logits)


def delivered_rule(plan: Plan, choice: Plan | None) -> Plan | None:
    """Return `linear_probe` of a deliverable's plan, without paths; None if no probe is delivered."""
    if not choice or not choice["weight"]:
        return None
    rule = {
        key: value for key, value in plan["linear_probe"].items() if key not in ("weights", "pretrained", "seconds")
    }
    return {**rule, **choice, "description": describe_mixture({**rule, **choice})}


def format_probe_note(rule: Plan | None) -> str:
    """Return the text for the deliverable's README."""
    if rule is None:
        return ""
    origin = rule["origin"]
    return (
        f"The model is {rule['description']}. The licence of the frozen weights applies to this model too: {origin['licence']}. "
        f"Origin: {origin['source']}" + (f"; {origin['citation']}" if origin["citation"] else "") + ".\n"
    )


def copy_backbone(out: Path, rule: Plan | None) -> dict[str, str]:
    """Copy the frozen weights of a delivered probe into the deliverable; return its entry of config.json."""
    target = out / BACKBONE_FILE
    target.unlink(missing_ok=True)  # of an earlier export
    if rule is None:
        return {}
    shutil.copy(LOGOUT / BACKBONE_FILE, target)
    return {"linear_probe_weights": BACKBONE_FILE}
