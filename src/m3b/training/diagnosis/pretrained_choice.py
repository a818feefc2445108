"""`--set network.pretrained=NAME|DIR` of this project: a start of the registry, or a whole classifier of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from m3b.training.diagnosis.pretrained_files import PretrainedError, fitting_size, read_config, read_norm
from m3b.training.pretrained.plan_start import use_start
from m3b.training.pretrained.starts import START


def use_wanted(plan: dict[str, Any], wanted: str) -> str:
    """Changes the plan; says what was done. Ends the program where the weights cannot be used."""
    place = Path(wanted)
    if place.exists() and not (place / START).exists():
        try:
            use_folder(plan, place)
            return f"weights start from {wanted}, as asked"
        except (PretrainedError, OSError, ValueError) as error:
            if "channels" in str(error):
                raise SystemExit(f"--set network.pretrained={wanted}: {error}") from error
    plan["batch"] = max(2, min(int(plan["batch"]), 32))
    return use_start(plan, wanted, dropout=plan["network"]["dropout"])


def use_folder(plan: dict[str, Any], place: Path) -> None:
    """A folder as transformers or MONAI writes it, with the classes of pictures that it was trained on."""
    config = read_config(place)
    names, room = plan["channel_names"] or (), int(config.get("num_channels", 3))
    if len(names) > room:
        raise PretrainedError(f"it takes {room} channels, and a case has {len(names)}: {', '.join(names)}")
    dropout = plan["network"]["dropout"]
    plan["network"] = {"name": "pretrained", "pretrained": str(place), "backbone_lr": 0.1, "dropout": dropout}
    plan["network"]["config"] = config
    plan["channels"] = room
    plan["lr"] = 1e-3
    if plan["dims"] == 2:
        plan["size"] = fitting_size(config, plan["size"])
    plan["batch"] = max(2, min(plan["batch"], 32))
    if plan["channels"] == 3 and not names and plan["intensity"]["mode"] != "percentile":
        plan["intensity"] |= read_norm(place)
