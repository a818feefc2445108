"""Available detectors of boxes, `network.detector` of plan.json: m3b's own, or one of torchvision or MONAI.

Their networks are in `external_detectors`, their planning in `detector_plan`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OWN_DETECTOR = "own"
DIMS = {OWN_DETECTOR: (2, 3), "fcos": (2,), "retinanet": (2,), "retinanet3d": (3,)}
"""Detector -> dimensions of its images."""
PACKAGES = {"fcos": ("torchvision",), "retinanet": ("torchvision",), "retinanet3d": ("monai", "torchvision")}
"""Packages that each detector needs in addition to PyTorch; MONAI's uses parts of torchvision."""
TITLES = {
    "fcos": "FCOS of torchvision (Tian et al., ICCV 2019)",
    "retinanet": "RetinaNet of torchvision (Lin et al., ICCV 2017)",
    "retinanet3d": "RetinaNet of MONAI (after Lin et al., ICCV 2017)",
}


def detector_of(network: Mapping[str, Any]) -> str:
    """Return the name of the detector of plan.json's `network`."""
    return str(network.get("detector") or OWN_DETECTOR)


def is_library(plan: Mapping[str, Any]) -> bool:
    """Return whether a detector of a library finds the boxes of a plan."""
    return plan.get("target") == "boxes" and detector_of(plan.get("network") or {}) != OWN_DETECTOR


def packages_of(network: Mapping[str, Any]) -> list[str]:
    """Return the packages for requirements.txt of the deliverable."""
    return list(PACKAGES.get(detector_of(network), ()))


def detector_line(network: Mapping[str, Any]) -> str:
    """Return a sentence for the deliverable's README; empty for m3b's own detector."""
    title, packages = TITLES.get(detector_of(network)), " and ".join(packages_of(network))
    return f"\nIts detector is the {title}; {packages} must be installed (requirements.txt).\n" if title else ""
