"""Stored tensors to a network's own: names by a key map, first layers to other channels, kernels of pictures to volumes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from m3b.training.pretrained.starts import StartError, names_in

MOST_LEFT = 0.2
"""A file with more tensors besides, as a share of what was taken, is of another network."""
UNUSED = r"mask_token$|pooler\."
"""Parameters that no picture goes through, which a file may lack."""
ALWAYS_LEFT = (r"num_batches_tracked$", r"(^|\.)(classifier|fc|head)\.", UNUSED, r"position_ids$")
"""Names that are left out of any file: heads, and what no picture goes through."""


@dataclass(frozen=True)
class Taken:
    """How much of a file was taken: tensors as they are, changed in form, and left."""

    plain: int
    adapted: int
    left: int

    def __str__(self) -> str:
        changed = f", {self.adapted} of them changed in form" if self.adapted else ""
        return (
            f"{self.plain + self.adapted} tensors taken{changed}, {self.left} left (heads and parts that are not used)"
        )


def fill(body: nn.Module, files: Sequence[Path], config: Mapping[str, Any], place: str) -> Taken:
    """Puts the stored tensors into a network. All of its parameters and running statistics have to be there.

    Args:
        config: `keys`, [pattern, replacement] pairs, and `leave`, patterns of mapped names.
        place: for messages.

    Raises:
        StartError: files that are damaged, incomplete, or of another network.
    """
    own = body.state_dict()
    stored, left = _mapped(files, config, own)
    needed = {name for name, _ in body.named_parameters()} | {key for key in own if ".running_" in key}
    needed = {name for name in needed if not re.search(UNUSED, name)}
    taken: dict[str, torch.Tensor] = {}
    adapted = 0
    for name, value in stored.items():
        found = fitted(value, own[name].shape)
        if found is None:
            raise StartError(
                f"{place}: {name} is {list(value.shape)}, and this network has {list(own[name].shape)} there: the file is "
                "of another network"
            )
        adapted += found.shape != value.shape
        taken[name] = found.to(own[name].dtype)
    if lacking := sorted(needed - set(taken)):
        raise StartError(
            f"{place}: {len(lacking)} of {len(needed)} tensors are missing ({lacking[0]}, ...): the file is not whole, or "
            "of another network; fetch it again, or name its own entry (`m3b models list`)"
        )
    if len(left["other"]) > MOST_LEFT * len(taken):
        raise StartError(
            f"{place}: {len(left['other'])} tensors besides the {len(taken)} of this network ({left['other'][0]}, ...): "
            "the file is of another, larger one; name its own entry (`m3b models list`)"
        )
    for name, factor in (config.get("gain") or {}).items():
        taken[name] = taken[name] * float(factor)
    body.load_state_dict({**own, **taken})
    return Taken(len(taken) - adapted, adapted, len(left["other"]) + len(left["known"]))


def _mapped(
    files: Sequence[Path], config: Mapping[str, Any], own: Mapping[str, torch.Tensor]
) -> tuple[dict[str, torch.Tensor], dict[str, list[str]]]:
    """The tensors that the network has a place for, by its names, and the names of the others: left on purpose, or not."""
    from safetensors import safe_open

    keys = [(re.compile(pattern), new) for pattern, new in config.get("keys") or ()]
    leave = re.compile("|".join((*ALWAYS_LEFT, *(config.get("leave") or ()))))
    found: dict[str, torch.Tensor] = {}
    left: dict[str, list[str]] = {"known": [], "other": []}
    for file in files:
        names_in(file)
        with safe_open(str(file), "pt") as stored:
            for name in stored.keys():  # noqa: SIM118 - it is no dict
                new = name
                for pattern, text in keys:
                    new = pattern.sub(text, new)
                if new in own:
                    found[new] = stored.get_tensor(name)
                else:
                    left["known" if leave.search(new) else "other"].append(new)
    return found, left


def fitted(value: torch.Tensor, shape: torch.Size) -> torch.Tensor | None:
    """A tensor in another form, None where it has no such form.

    A kernel of pictures becomes one of volumes by repeating it along the third axis, divided by its width (Carreira and
    Zisserman, CVPR 2017). Channels of a first layer: to one by their sum, since a grey picture is the same in all; to more
    by repeating them, scaled so that the sum stays.
    """
    if value.shape == shape:
        return value
    if value.ndim == 4 and len(shape) == 5 and value.shape[2:] == shape[2:4]:
        value = value[..., None].expand(*value.shape, shape[4]) / shape[4]
    if value.ndim == len(shape) and value.ndim > 3 and value.shape[0] == shape[0] and value.shape[2:] == shape[2:]:
        have, want = value.shape[1], shape[1]
        if want == 1:
            value = value.sum(1, keepdim=True)
        elif have != want and have <= 4:  # a first layer: deeper ones have more
            times = -(-want // have)
            value = value.repeat(1, times, *(1,) * (value.ndim - 2))[:, :want] * (have / want)
    return value.contiguous() if value.shape == shape else None


def groups(model: nn.Module, plan: Mapping[str, Any], part: str = ".body.") -> Any:
    """What was pretrained learns at `network.backbone_lr` of the rate, all else at the whole; None without such a part."""
    if not plan["network"].get("pretrained"):
        return None
    slow = [value for name, value in model.named_parameters() if part in f".{name}"]
    rest = [value for name, value in model.named_parameters() if part not in f".{name}"]
    return [(slow, float(plan["network"].get("backbone_lr") or 0.1)), (rest, 1.0)]
