"""Where torchvision is for the tests of its detectors, and detectors with random weights in its own layout.

A PyTorch for CPUs and torchvision's usual build in one environment break the import of transformers for all that does not mend it
(`torchvision_ops`), so that `make test` puts torchvision into a folder of its own beside the packages.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

TORCHVISION_FOLDER = Path(sys.prefix) / "torchvision"


def path_of_torchvision() -> str:
    """What PYTHONPATH has to hold; the test is skipped where there is no torchvision."""
    if importlib.util.find_spec("torchvision"):
        return ""
    if (TORCHVISION_FOLDER / "torchvision").is_dir():
        return str(TORCHVISION_FOLDER)
    pytest.skip(f"torchvision is neither installed nor in {TORCHVISION_FOLDER}")


def ask(project: Path, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """A script of the project, in a new process: a warm one has imported MONAI without torchvision."""
    env = {**os.environ, "PYTHONPATH": path_of_torchvision(), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *command], cwd=project, env=env, check=False, capture_output=True, text=True)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


SAVE = """
import sys
from m3b.training.torchvision_ops import import_detection
import torch
kind, folder = sys.argv[1:3]
models = import_detection()
from torchvision.models import resnet
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.models.detection.retinanet import RetinaNetHead, _default_anchorgen
from torchvision.ops.feature_pyramid_network import LastLevelP6P7
from safetensors.torch import save_file
torch.manual_seed(3)
body = resnet.ResNet(resnet.BasicBlock, [1, 1, 1, 1])
if kind != "resnet":
    body = BackboneWithFPN(body, {"layer2": "0", "layer3": "1", "layer4": "2"}, [128, 256, 512], 64, LastLevelP6P7(64, 64))
    body = models.FCOS(body, 7) if kind == "fcos" else models.RetinaNet(body, 7)
state = {name: value.contiguous() for name, value in body.state_dict().items()}
if kind == "retinanet":  # as torchvision's file of 2021 has it
    import re
    old = lambda found: f"conv.{2 * int(found[1])}.{found[2]}"
    state = {re.sub(r"conv\\.(\\d)\\.0\\.(weight|bias)$", old, name) if "_head" in name else name: v for name, v in state.items()}
import pathlib
pathlib.Path(folder).mkdir(parents=True)
save_file(state, folder + "/model.safetensors")
"""


def put_detector(project: Path, kind: str, folder: Path) -> Path:
    """A folder with a small `fcos`, `retinanet` or `resnet` as torchvision names its tensors: ResNet of one block a stage, seven
    classes, a pyramid of 64 channels."""
    ask(project, "-c", SAVE, kind, str(folder))
    return folder
