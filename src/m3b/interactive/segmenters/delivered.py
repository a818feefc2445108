"""A delivered m3b segmentation model's answer as the first proposal, which prompts then correct."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from m3b.errors import UsageError
from m3b.interactive.imaging import Picture2D
from m3b.interactive.segmenter import Mask, MaskProposal
from m3b.models import Model, load_model, read_model_info
from m3b.models.pixel_jobs import ConfinedImageIO

DEFAULT_SCORE = 0.5
"""What is expected of its IoU: a delivered model says nothing of single images, so any prompted mask that is trusted more wins."""


def predict_first_proposal(
    folder: Path | Model, picture: Picture2D, opener: ConfinedImageIO | None, class_name: str = ""
) -> MaskProposal:
    """Run a delivered model, given or loaded from its folder, on the image's file; its code runs confined.

    Args:
        opener: opens the mask that it writes, in its own folder.
        class_name: which class; may be empty where there is one.

    Raises:
        UsageError: the model writes no masks, has several classes and none was named, or the image is no file.
    """
    model = folder if isinstance(folder, Model) else load_model(folder)
    if picture.source is None or opener is None:
        raise UsageError("A delivered model reads files: give the image's path, not an array.")
    resolved_class = class_name or (model.classes[0] if len(model.classes) == 1 else "")
    if resolved_class not in model.classes:
        raise UsageError(f"Which class shall the first mask be of? {model.folder} knows {', '.join(model.classes)}.")
    with model, tempfile.TemporaryDirectory(prefix="first-", dir=opener.folder) as output_folder:
        answer = model.predict([picture.source], out=output_folder)[0]
        if answer.masks.get(resolved_class) is not None:
            mask = opener.read_mask(str(answer.masks[resolved_class])) > 0
        elif answer.mask is not None:
            value = read_model_info(model.folder).labels.get(resolved_class, model.classes.index(resolved_class) + 1)
            mask = opener.read_mask(str(answer.mask), value) > 0
        else:
            raise UsageError(f"{model.folder} is a {model.task} model and writes no masks.")
    return MaskProposal(_take_slice(mask, picture), DEFAULT_SCORE)


def _take_slice(mask: Mask, picture: Picture2D) -> Mask:
    return mask if picture.volume is None else np.ascontiguousarray(mask[:, :, picture.index])
