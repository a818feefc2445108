"""Texts for normal and abnormal, with which a vision-language model compares patches.

They are in `plan["prompts"]`, where they can be adapted to the organ: {"object": "chest X-ray", "normal": ["clear {} without
opacity", ...], "abnormal": [...], "templates": ["a photo of the {}.", ...]}. `{}` is the object in states, and the state in
templates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

NORMAL = (
    "{}",
    "flawless {}",
    "perfect {}",
    "unblemished {}",
    "{} without flaw",
    "{} without defect",
    "{} without damage",
)
ABNORMAL = ("damaged {}", "broken {}", "{} with flaw", "{} with defect", "{} with damage")
MEDICAL_NORMAL = ("normal {}", "healthy {}", "{} without abnormality", "{} without lesion", "unremarkable {}")
MEDICAL_ABNORMAL = (
    "abnormal {}",
    "diseased {}",
    "{} with abnormality",
    "{} with a lesion",
    "{} with pathological findings",
)
_PHOTOS = ("photo", "close-up photo", "bright photo", "dark photo", "blurry photo", "cropped photo", "low resolution photo",
           "black and white photo", "jpeg corrupted photo", "bad photo", "good photo")  # fmt: skip
_SCENES = ("there is a {} in the scene.", "there is the {} in the scene.", "this is a {} in the scene.",
           "this is the {} in the scene.", "this is one {} in the scene.")  # fmt: skip
_PHOTO_VARIANTS = ("a photo of my {}.", "a photo of the cool {}.", "a photo of a cool {}.", "a photo of one {}.",
           "a photo of a large {}.", "a photo of the large {}.", "a photo of a small {}.",
           "a photo of the small {}.")  # fmt: skip
TEMPLATES = (
    *(f"a {kind} of {article} {{}}." for kind in _PHOTOS for article in ("a", "the")),
    *_PHOTO_VARIANTS,
    *_SCENES,
)
"""35 templates, as WinCLIP (Jeong et al., CVPR 2023) and later methods use them."""


def default_prompts(prompt_object: str, paper: bool = False) -> dict[str, Any]:
    """Return states and templates for an object such as "chest X-ray"; only those of MVFA (CVPR 2024) with `paper`."""
    normal, abnormal = (NORMAL, ABNORMAL) if paper else ((*MEDICAL_NORMAL, *NORMAL), (*MEDICAL_ABNORMAL, *ABNORMAL))
    return {"object": prompt_object, "normal": list(normal), "abnormal": list(abnormal), "templates": list(TEMPLATES)}


def build_sentences(prompts: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return every state in every template, for normal and for abnormal.

    Raises:
        SystemExit: a list without entries, or a template without `{}`.
    """
    sentences = []
    for state in ("normal", "abnormal"):
        states, templates = list(prompts.get(state) or ()), list(prompts.get("templates") or ("{}",))
        if not states:
            raise SystemExit(f"plan.json: prompts.{state} is empty; write at least one text such as 'healthy {{}}'")
        if invalid := [text for text in templates if "{}" not in text]:
            raise SystemExit(f"plan.json: the template {invalid[0]!r} has no {{}} where the state belongs")
        words = [text.replace("{}", str(prompts.get("object") or "image")) for text in states]
        sentences.append([template.replace("{}", word) for word in words for template in templates])
    return sentences[0], sentences[1]


def text_features(encode: Any, prompts: Mapping[str, Any], batch: int = 64) -> torch.Tensor:
    """Return (2, joint) unit vectors of normal and abnormal: each text is normalised, and so is their mean."""
    rows = []
    for texts in build_sentences(prompts):
        parts = [encode(texts[first : first + batch]).float() for first in range(0, len(texts), batch)]
        rows.append(_to_unit_vectors(_to_unit_vectors(torch.cat(parts)).mean(dim=0)))
    return torch.stack(rows)


def _to_unit_vectors(x: torch.Tensor) -> torch.Tensor:
    return x / x.norm(dim=-1, keepdim=True).clamp_min(1e-6)


def sample_states(prompts: Mapping[str, Any]) -> Sequence[str]:
    """Return some states for the description of a plan."""
    return [*prompts["normal"][:3], "...", *prompts["abnormal"][:3]]
