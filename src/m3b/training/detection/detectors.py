"""Which detector finds the boxes, `network.detector` of plan.json: the template's own, or one of torchvision or MONAI.

Their networks are in `library_detectors`; what plan.py decides of them is in detector_plan.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OWN = "own"
DIMS = {OWN: (2, 3), "fcos": (2,), "retinanet": (2,), "retinanet3d": (3,)}
"""Detector -> dimensions of the images that it takes."""
PACKAGES = {"fcos": ("torchvision",), "retinanet": ("torchvision",), "retinanet3d": ("monai", "torchvision")}
"""What each needs besides PyTorch; MONAI's is built of parts of torchvision."""
TITLES = {
    "fcos": "FCOS of torchvision (Tian et al., ICCV 2019)",
    "retinanet": "RetinaNet of torchvision (Lin et al., ICCV 2017)",
    "retinanet3d": "RetinaNet of MONAI (after Lin et al., ICCV 2017)",
}


def detector_of(network: Mapping[str, Any]) -> str:
    """Name of the detector of plan.json's `network`."""
    return str(network.get("detector") or OWN)


def is_library(plan: Mapping[str, Any]) -> bool:
    """Whether the boxes of a plan are found by a detector of a library."""
    return plan.get("target") == "boxes" and detector_of(plan.get("network") or {}) != OWN


def packages_of(network: Mapping[str, Any]) -> list[str]:
    """For requirements.txt of the deliverable."""
    return list(PACKAGES.get(detector_of(network), ()))


def detector_line(network: Mapping[str, Any]) -> str:
    """For the deliverable's README; empty for the template's own."""
    title, needed = TITLES.get(detector_of(network)), " and ".join(packages_of(network))
    return f"\nIts detector is the {title}; {needed} must be installed (requirements.txt).\n" if title else ""
