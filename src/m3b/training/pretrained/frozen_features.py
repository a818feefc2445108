"""Frozen pretrained networks on a processor: each image, in a few augmented versions, goes through the network once.

`network.backbone_lr` of 0 freezes the weights; then `network.feature_views` is the number of versions, and their features stay in
memory, so that later epochs, folds and scorings cost the layers behind them alone. 0 computes features in every step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import Dataset

from m3b.training.machine import machine_of
from m3b.training.recipe import Batch, Transform, apply_transforms
from m3b.training.slice_encoder import pretrained_plan
from m3b.training.time_budget import choose_precision, compare_in_turns

Plan = dict[str, Any]
FEATURE_SHARE = 0.3
"""Share of the minutes for the features of the training cases."""
MIN_VIEWS, MAX_VIEWS = 2, 8
"""Versions of an image: fewer than the minimum are computed from a smaller image instead."""
FEATURE_SIDES = (448, 336, 224, 112)
"""Sides of the input, multiples of the patches of vision transformers (14 and 16)."""


class RepeatedViews(Dataset[Batch]):
    """A data set whose items are random versions of their cases, the same `views` versions in every epoch.

    Each item has a "seed", by which `prepare_repeatably` augments it. The data set takes its random numbers from torch's generator.
    """

    def __init__(self, dataset: Any, views: int, seed: int) -> None:
        self.dataset, self.views, self.seed = dataset, views, seed

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, item: Any) -> Batch:
        return self._get_version(item, int(torch.randint(self.views, ())))

    def list_versions(self) -> Iterator[Batch]:
        """Yield each version of each case."""
        for item in range(len(self.dataset.rows)):
            yield from (self._get_version(item, view) for view in range(self.views))

    def _get_version(self, item: Any, view: int) -> Batch:
        case = item[0] if isinstance(item, tuple) else item
        seed = (self.seed * 1_000_003 + int(self.dataset.rows[case])) * self.views + view
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return {**self.dataset[item], "seed": torch.tensor(seed)}


def prepare_repeatably(transforms: Sequence[Transform], batch: Batch) -> Batch:
    """Return the batch, in which each item is augmented by the random numbers of its "seed" alone."""
    prepared = []
    with torch.random.fork_rng(devices=[]):
        for index, seed in enumerate(batch["seed"]):
            torch.manual_seed(int(seed) + 1)
            item = {key: value[index : index + 1] for key, value in batch.items() if key != "seed"}
            prepared.append(apply_transforms(transforms, item))
    return {key: torch.cat([part[key] for part in prepared]) for key in prepared[0]}


def has_frozen_backbone(plan: Mapping[str, Any]) -> bool:
    """Return whether the plan has a backbone whose weights stay as they are."""
    network = plan.get("network") or {}
    return network.get("backbone_lr") == 0 and bool((network.get("config") or {}).get("builder"))


def choose_feature_views(
    plan: Plan,
    cases: int,
    inputs: Sequence[Mapping[str, Any]],
    time_image: Callable[[Plan], float],
    overrides: Collection[str] = (),
) -> list[str]:
    """Choose the input of a frozen network on this processor, and how many versions of each case; return lines on it.

    Args:
        inputs: changes of the plan, from the largest input to the smallest.
        time_image: (plan) to the seconds of an image.
        overrides: keys that were set by hand and stay.
    """
    network = plan["network"]
    if not has_frozen_backbone(plan) or machine_of(plan).gpus or machine_of(plan).is_remote:
        return []
    if "precision" not in overrides:
        choose_precision(plan, compare_in_turns(time_image))
    seconds = FEATURE_SHARE * 60 * float(plan["minutes"])
    image_seconds = float("inf")
    for change in inputs:
        plan |= change
        image_seconds = time_image(plan)
        if cases * image_seconds * MIN_VIEWS <= seconds:
            break
    views = int(min(MAX_VIEWS, max(1, seconds / (cases * image_seconds))))
    if "network.feature_views" in overrides:
        views = int(network["feature_views"])
    network |= {"feature_views": views, "feature_seconds": round(cases * views * image_seconds, 1)}
    return [
        f"the weights stay as they are: features of {views} version{'s' if views > 1 else ''} of each of {cases} images are "
        f"computed once, about {network['feature_seconds']:.0f} s in all ({image_seconds:.2f} s an image)"
    ]


def time_image(plan: Plan, device: str | torch.device = "cpu") -> float:
    """Return the seconds that the backbone of the plan takes for one image of its `patch` or `size`, or the slices of a volume."""
    from m3b.training.precision import autocast
    from m3b.training.pretrained.backbones import build_backbone

    inner, count = pretrained_plan(plan)
    channels = int(inner["channels"])
    body = build_backbone({**inner["network"], "feature_views": 0}, int(inner["dims"]), channels, load=False)
    image = torch.randn(count, channels, *(inner.get("patch") or inner["size"]), device=device)
    body.to(device).eval()
    times = []
    with torch.inference_mode(), autocast(plan, torch.device(device)):
        for _ in range(3):
            start = time.monotonic()
            body(image)[-1].cpu()
            times.append(time.monotonic() - start)
    return min(times)
