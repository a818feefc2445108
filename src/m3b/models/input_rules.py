"""Which images a delivered model takes: refusal of files with other axes, with a code and what to do instead."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from m3b.data.records import Image
from m3b.measure import to_number

SINGLE_PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".pgm", ".ppm")
"""Suffixes of files that hold one 2D image."""
NOT_PREDICTED = "not_predicted"
"""Code of an image that predict.py itself could not predict."""


def plan_of(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the plan in a model's config.json; empty if there is none."""
    plan = config.get("plan")
    return plan if isinstance(plan, Mapping) else {}


def channel_names_of(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the images that a case consists of, in the model's order; empty if a case is one image."""
    names = plan_of(config).get("channel_names")
    return tuple(names) if isinstance(names, list) else ()


def covariate_rules_of(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Return the covariates of a model: objects with `name` and `kind` (`number`, or `category` with its `values`)."""
    rules = plan_of(config).get("covariates")
    return tuple(rules) if isinstance(rules, list) else ()


def find_plan_problem(config: Mapping[str, Any]) -> str:
    """Return which entry of the plan in config.json has a type that m3b cannot use; empty if none has."""
    plan = plan_of(config)
    names, rules, spacing, window = (plan.get(key) for key in ("channel_names", "covariates", "spacing", "intensity"))
    if names is not None and not (_is_text_list(names) and len(set(names)) == len(names)):
        return "`plan.channel_names` must be a list of different names"
    if rules is not None and not (isinstance(rules, list) and all(map(_is_covariate_rule, rules))):
        return (
            "`plan.covariates` must be a list of objects with a `name` and a `kind`: `number` with its `centre`, or "
            "`category` with its `values`"
        )
    if plan.get("dims") == 3 and spacing and not _is_spacing(spacing):
        return "`plan.spacing` must be 3 positive numbers"
    if isinstance(window, dict) and window.get("mode") == "window" and not _has_limits(window):
        return "`plan.intensity` must have `low` and `high`, the numbers of its window"
    return ""


def _is_text_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _is_number(value: Any) -> bool:
    number = to_number(value)
    return number is not None and math.isfinite(number)


def _has_limits(window: Mapping[str, Any]) -> bool:
    return _is_number(window.get("low")) and _is_number(window.get("high"))


def _is_spacing(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(_is_number(size) and size > 0 for size in value)


def _is_covariate_rule(rule: Any) -> bool:
    if not isinstance(rule, dict) or not isinstance(rule.get("name"), str):
        return False
    values = rule.get("values")
    is_category = rule.get("kind") == "category" and bool(values) and _is_text_list(values)
    return is_category or (rule.get("kind") == "number" and _is_number(rule.get("centre")))


@dataclass(frozen=True)
class InputProblem:
    """Why an image is refused: a code for programs, and a message."""

    code: str
    message: str


@dataclass(frozen=True)
class ImageAxes:
    """Axes of an image file: 2 or 3 spatial dimensions, pages of a picture file, volumes of a series."""

    dims: int
    pages: int = 1
    volumes: int = 1


@dataclass(frozen=True)
class InputRules:
    """What a model takes, from its plan.

    Args:
        dims: spatial dimensions of its images; None if its config.json does not say.
        channels: volumes of a series that it takes as channels.
    """

    dims: int | None = None
    channels: int = 1

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> InputRules:
        """Return the rules of a model by its config.json; a model of clips takes files of any axes."""
        plan = plan_of(config)
        dims, channels = plan.get("dims"), plan.get("channels")
        if dims not in (2, 3) or plan.get("frames"):
            return cls()
        return cls(int(dims), int(channels) if isinstance(channels, int) and channels > 0 else 1)

    def files_to_check(self, image: Image) -> Sequence[str]:
        """Return the files of a case whose axes decide: each channel and view, but not the slices of a volume.

        A 2D model takes every file that can only hold one picture; it need not be opened.
        """
        if self.dims is None:
            return ()
        files = image.values() if isinstance(image, Mapping) else (image,) if isinstance(image, str) else image
        if self.dims == 2:
            return tuple(file for file in files if not file.lower().endswith(SINGLE_PICTURE_SUFFIXES))
        return tuple(files) if isinstance(image, str | Mapping) else ()

    def find_problem(self, path: str, axes: ImageAxes) -> InputProblem | None:
        """Return why a file with these axes is refused; None if it fits."""
        if self.dims == 2 and axes.pages > 1:
            return InputProblem(
                "several_pages_for_2d_model",
                f"{path} has {axes.pages} pages, and the model takes one 2D image: save the page that you mean as a file",
            )
        if self.dims == 2 and axes.dims == 3:
            return InputProblem(
                "volume_for_2d_model",
                f"{path} is a volume, and the model takes 2D images: save the slices that you mean as pictures",
            )
        if self.dims == 3 and axes.dims == 2:
            return InputProblem(
                "image_for_3d_model",
                f"{path} is a 2D image, and the model takes volumes: name a volume, or the folder of all its slices",
            )
        if self.dims == 3 and axes.volumes > self.channels:
            return InputProblem(
                "several_volumes_for_one_channel_model" if self.channels == 1 else "more_volumes_than_channels",
                f"{path} holds {axes.volumes} volumes, and the model takes {self.channels}: save the volume that you mean "
                "as a file",
            )
        return None
