"""Writes the deliverable: a folder that predicts on its own, without this project.

python export.py --out Deliver
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from m3b.training.deliverable import copy_code, list_scripts, put_texts
from m3b.training.diagnosis.targets import kind_of
from m3b.training.entry import held_out
from m3b.training.folds import copy_weights, delivered, readme_note
from m3b.training.named_channels import takes
from m3b.training.pretrained.plan_start import packages
from m3b.training.pretrained.trial import settled, start_card, start_lines, without_paths


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="Deliver")
    out = Path(parser.parse_args(argv).out)
    plan = settled(json.loads(Path("plan.json").read_text()))
    weights = delivered(plan)
    missing = [str(file) for file in (*weights, Path("Logout/calibration.json")) if not file.exists()]
    if missing:
        raise SystemExit(f"nothing trained at {', '.join(missing)}: run train.py to its end first")
    copy_code(out, plan["network"], list_scripts(Path(__file__).with_name("export_modules.py")))
    names = copy_weights(weights, out)
    config = make_config(plan, names)
    config["familiar"] = keep_familiar(plan, weights, out)
    more = ["monai", *(["av"] if plan.get("frames") else []), *packages(plan["network"])]
    put_texts(out, config, more, _readme(plan, config))
    print(
        f"wrote {out}: {len(names)} network(s), temperature {config['temperature']}, thresholds {config['thresholds']}"
    )


def make_config(plan: dict[str, Any], weights: list[str]) -> dict[str, Any]:
    """What predict.py reads. Of a pretrained network its form is kept, not where it lay."""
    calibration = json.loads(Path("Logout/calibration.json").read_text())
    if "alone" in calibration:
        calibration["alone"] = dict(zip(weights, calibration["alone"], strict=True))
    plan = {key: value for key, value in plan.items() if key != "scratch"}
    return {
        "task": plan["task"],
        "probabilities": "number" not in plan,
        "classes": plan["classes"],
        "multi_label": bool(plan["multi_label"]),
        "weights": weights,
        "refit": bool(plan.get("refit")),
        **calibration,
        **start_card(plan),
        "plan": {**plan, "network": without_paths(plan["network"])},
        "held_out": held_out(),
    }


def keep_familiar(plan: dict[str, Any], weights: list[Path], out: Path) -> dict[str, Any]:
    """What training images look like, to the eye and to the networks; arrays go to familiar.safetensors."""
    import numpy as np
    import torch
    from safetensors.torch import load_file, save_file

    from m3b.training.diagnosis.features import watched
    from m3b.training.diagnosis.network import build_model
    from m3b.training.out_of_distribution_cases import learn
    from m3b.training.preprocess import preprocess

    if plan.get("covariates") or int(plan.get("views") or 1) > 1:
        return learn(plan)[0]  # features then hang on more than one image

    models = []
    for file in weights:
        model = build_model(plan, with_loss=False)
        model.load_state_dict(load_file(str(file)))
        models.append(model.eval())

    def features(image: Any, name: str) -> list[np.ndarray]:
        batch = torch.from_numpy(preprocess(image, plan, name))[None]
        with torch.no_grad(), watched(models, len(plan["classes"])) as seen:
            for model in models:
                model(batch)
        if not seen:
            raise LookupError
        return [one[0] for one in seen]

    try:
        told, arrays = learn(plan, features)
    except LookupError:  # a network without a last linear layer
        told, arrays = learn(plan)
    if arrays:
        save_file({name: torch.from_numpy(value) for name, value in arrays.items()}, str(out / "familiar.safetensors"))
    return told


def _readme(plan: dict[str, Any], config: dict[str, Any]) -> str:
    metrics = json.loads(Path("Logout/metrics.json").read_text())
    kind = kind_of(plan)
    looks = len(config["views"])
    return (
        f"# {kind.noun}: {', '.join(plan['classes'])}\n\n"
        "    pip install -r requirements.txt\n    python predict.py IMAGE... -o predictions.json\n\n"
        f"Takes {takes(plan)} and {kind.about(metrics, config)} "
        + (f"Each image is looked at in {looks} slightly moved views.\n" if looks > 1 else "Each image is seen once.\n")
        + readme_note(plan)
        + start_lines(plan)
    )
