from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A delivered model of the least size that passes the check."""
    target = tmp_path / "model"
    target.mkdir()
    (target / "predict.py").write_text("from pathlib import Path\nHERE = Path(__file__).parent\n")
    (target / "config.json").write_text('{"classes": ["a", "b"], "inputs": [".png", ".nii.gz"]}')
    (target / "README.md").write_text("# card")
    (target / "requirements.txt").write_text("torch>=2.6\nnumpy>=1\nPillow>=10\n")
    save_file({"w": np.zeros(3, np.float32)}, target / "model.safetensors")
    return target
