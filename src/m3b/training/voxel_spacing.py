"""Files whose header holds no true spacing: none at all, or the 1 x 1 x 1 mm that converters write where they know none.

Resampled as if it were true, a placeholder shrinks a chest to a few voxels. Such a volume is taken to show as much of the
body as usual.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

FAR = 2.0
"""So many times larger or smaller than usual along an axis, and a spacing of 1 mm everywhere is not believed."""

Spacing = Sequence[float] | None


def usual_extent(images: Sequence[Mapping[str, Any]]) -> list[float] | None:
    """Median mm an axis of the volumes of which the spacing is known; None where too few are.

    Args:
        images: each with `shape` and `spacing` (or None).
    """
    known = [one for one in images if one["spacing"] and len(one["shape"]) == 3]
    sure = [one for one in known if not _ones(one["spacing"])]
    if not sure or len(sure) < len(images) / 4:
        return None
    extents = [np.array(one["shape"], float) * np.array(one["spacing"]) for one in sure]
    return [round(float(side), 1) for side in np.median(extents, axis=0)]


def true_spacing(shape: Sequence[int], spacing: Spacing, extent: Sequence[float] | None) -> Spacing:
    """The spacing to work with: the file's own, or, where that is missing or a placeholder, what the usual extent implies."""
    if extent is None or len(shape) != len(extent):
        return spacing
    if spacing and not (_ones(spacing) and _far(shape, extent)):
        return spacing
    return [float(side) / count for side, count in zip(extent, shape, strict=True)]


def believe(images: Sequence[dict[str, Any]]) -> tuple[list[float] | None, list[str]]:
    """Puts the spacing to work with into each of `images`; the usual extent, and the paths of those that were not believed."""
    extent, changed = usual_extent(images), []
    for one in images:
        found = true_spacing(one["shape"], one["spacing"], extent)
        if found is not one["spacing"]:
            changed.append(str(one["path"]))
        one["spacing"] = found
    return extent, changed


def measure_field(images: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return `extent` (`usual_extent`), and of the volumes with a spacing, where most have one: `view_ratio`, how much larger wide
    fields of view are than narrow ones; `body` and `voxel`, mm an axis of most bodies and of the usual voxel. Else `view_ratio` is 0.

    Args:
        images: each with `shape`, `spacing` (or None) and `body`, its limits as shares of the axes.
    """
    extent, known = usual_extent(images), []
    for one in images:
        spacing = true_spacing(one["shape"], one["spacing"], extent)
        if spacing and len(spacing) == len(one["shape"]) == 3:
            known.append((np.array(one["shape"], float) * spacing, np.ptp(one["body"], axis=1), spacing))
    facts: dict[str, Any] = {"extent": extent, "view_ratio": 0.0, "body": None, "voxel": None}
    if 2 * len(known) <= len(images):
        return facts
    fields, shares, spacings = (np.array(part, float) for part in zip(*known, strict=True))
    narrow, wide = np.percentile(fields, (5, 95), axis=0)
    ratio = float((wide / narrow).max())
    if extent is None and ratio >= FAR and all(map(_ones, spacings)):  # placeholders in every file
        return facts
    body = np.percentile(fields * shares, 90, axis=0)
    return {**facts, "view_ratio": ratio, "body": body.tolist(), "voxel": np.median(spacings, axis=0).tolist()}


VARIES = 1.1
"""`view_ratio` from which whole volumes are shown at one physical scale. Stretched to one grid, equal structures of volumes whose
fields of view differ so much would differ in size by a tenth."""


MARGIN = 1.05
"""So much larger than the bodies is the field: thin ends of a body are below the noise that `body_limits` leaves out."""


def physical_grid(facts: Mapping[str, Any], most: int, least: int = 16, step: int = 8) -> dict[str, Any]:
    """Return `size`, `fit`, `field`, `extent` and `why_fit` of the plan of a model that sees volumes whole, if they are to be shown at
    one physical scale: voxels as coarse as bodies of up to `most` voxels a side need; else only `fit` and `why_fit`.

    Args:
        facts: of `measure_field`.
        most: voxels that no side exceeds; `least` that each has; all are multiples of `step`.
    """
    ratio = float(facts["view_ratio"])
    if ratio < VARIES:
        known = (
            f"fields of view hardly differ (by a factor of {ratio:.2f})" if ratio else "sizes of voxels are not known"
        )
        return {"fit": "stretch", "field": None, "why_fit": f"{known}: each is stretched to the input"}
    body = MARGIN * np.array(facts["body"])
    voxel = np.maximum(facts["voxel"], (body / most).max())
    size = np.clip(np.ceil(body / voxel / step - 1e-6) * step, least, most)
    return {
        "size": [int(side) for side in size],
        "fit": "field",
        "field": [round(float(side), 2) for side in size * voxel],
        "extent": facts["extent"],
        "why_fit": f"fields of view differ by a factor of {ratio:.2f}: one physical scale for all, cropped or padded around the body",
    }


def told_grid(plan: Mapping[str, Any]) -> str:
    """Return how volumes are brought to the input's grid, and why; "" if the plan says nothing of it."""
    if plan.get("spacing") or "why_fit" not in plan or plan["fit"] != "field":
        return "" if plan.get("spacing") else str(plan.get("why_fit", ""))
    voxel = " x ".join(f"{side / count:.3g}" for side, count in zip(plan["field"], plan["size"], strict=True))
    return f"{plan['why_fit']}, voxels of {voxel} mm"


def disbelieved(facts: Mapping[str, Any]) -> list[str]:
    """A line where spacings were not believed, or none."""
    files = facts["placeholders"]
    if not files:
        return []
    return [
        f"{len(files)} volumes looked at have no spacing, or 1 x 1 x 1 mm as a placeholder (such as {files[0]}): each is taken "
        f"to show as much as the others, {facts['extent']} mm"
    ]


def _ones(spacing: Sequence[float]) -> bool:
    return all(abs(step - 1.0) < 1e-3 for step in spacing)


def _far(shape: Sequence[int], extent: Sequence[float]) -> bool:
    share = np.array(shape, float) / np.array(extent)
    return bool((share > FAR).any() or (share < 1 / FAR).any())
