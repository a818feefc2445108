"""`m3b models fetch` and `convert`: pickles become safetensors in the sandbox, and what is not right is refused."""

from __future__ import annotations

import functools
import json
import threading
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from loopback_kit import LoopbackServer
from m3b.cli.app import app
from m3b.errors import ModelError, UsageError
from m3b.isolation.sandbox import choose_sandbox
from m3b.models.pretrained import find_stored_weights
from m3b.models.pretrained.install import convert, fetch


def _state() -> dict[str, Any]:
    import torch

    return {"conv1.weight": torch.arange(6.0).view(2, 3), "bn1.running_mean": torch.ones(2)}


class Evil:
    """Runs a command where a pickle of it is opened."""

    def __reduce__(self) -> Any:
        import os

        return os.system, ("touch evil-was-run; touch /tmp/evil-was-run",)


def test_pickled_arrays_modules_and_checkpoints_become_the_same_tensors(tmp_path: Path) -> None:
    import numpy as np
    import torch
    from safetensors.torch import load_file

    state, sandbox = _state(), choose_sandbox("auto")
    torch.save(state, tmp_path / "plain.pth")
    torch.save({"epoch": 3, "state_dict": state, "optimizer": {"lr": torch.ones(1)}}, tmp_path / "wrapped.pt")
    torch.save(state, tmp_path / "old.bin", _use_new_zipfile_serialization=False)
    np.savez(tmp_path / "arrays.npz", **{name: value.numpy() for name, value in state.items()})
    layer = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    torch.save(layer, tmp_path / "module.ckpt")
    hows = {}
    for name in ("plain.pth", "wrapped.pt", "old.bin", "arrays.npz", "module.ckpt"):
        conversion = convert(tmp_path / name, tmp_path / f"{name}.out", sandbox)
        hows[name] = conversion.method
        tensors = load_file(str(conversion.file))
        expected = layer.state_dict() if name == "module.ckpt" else state
        assert set(tensors) == set(expected), name
        assert all(torch.equal(tensors[key], expected[key]) for key in tensors), name
        assert conversion.tensors == len(expected)
    assert hows["plain.pth"] == hows["wrapped.pt"] == "weights_only"
    assert hows["module.ckpt"] == "inert records"
    assert hows["arrays.npz"] == "numpy, no pickle"


def test_code_in_a_pickle_is_not_run_and_no_weights_are_an_error(tmp_path: Path) -> None:
    import torch

    sandbox = choose_sandbox("auto")
    torch.save({"x": torch.ones(2), "y": Evil()}, tmp_path / "evil.pt")
    conversion = convert(tmp_path / "evil.pt", tmp_path / "out", sandbox)
    assert (conversion.tensors, conversion.method) == (1, "inert records")
    assert not Path("/tmp/evil-was-run").exists()
    (tmp_path / "text.pt").write_text("no weights")
    with pytest.raises(ModelError, match="could not be converted"):
        convert(tmp_path / "text.pt", tmp_path / "out2", sandbox)
    torch.save({"epoch": 3}, tmp_path / "empty.pt")
    with pytest.raises(ModelError, match="no tensors"):
        convert(tmp_path / "empty.pt", tmp_path / "out3", sandbox)
    with pytest.raises(UsageError, match="no file of weights"):
        convert(tmp_path / "absent.pt", tmp_path / "out4", sandbox)


def test_fetched_from_a_folder_or_an_address_and_compared_with_the_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setenv("M3B_WEIGHTS", str(tmp_path / "store"))
    monkeypatch.delenv("M3B_OFFLINE", raising=False)
    sandbox, source = choose_sandbox("auto"), tmp_path / "source"
    source.mkdir()
    with pytest.raises(UsageError, match=r"holds none of open_clip_model.safetensors.*huggingface.co"):
        fetch("biomedclip", str(source), sandbox)
    torch.save({"visual.trunk.norm.weight": torch.ones(2)}, source / "open_clip_pytorch_model.bin")
    folder, conversion = fetch("biomedclip", str(source), sandbox)
    assert conversion.tensors == 1
    record = json.loads((folder / "m3b-start.json").read_text())
    assert (record["entry"], record["licence"], record["from"], record["read"]) == (
        "biomedclip",
        "MIT",
        "a folder",
        "weights_only",
    )
    assert find_stored_weights("biomedclip") is not None
    with pytest.raises(UsageError, match="--force"):
        fetch("biomedclip", str(source), sandbox)
    server = LoopbackServer(("127.0.0.1", 0), functools.partial(SimpleHTTPRequestHandler, directory=str(source)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        base = f"http://127.0.0.1:{server.server_address[1]}"
        fetch("biomedclip", base, sandbox, force=True)
        with pytest.raises(ModelError, match="has none of small_ep4k"):
            fetch("stunet/small", base, sandbox)
        monkeypatch.setenv("M3B_OFFLINE", "1")
        with pytest.raises(UsageError, match="m3b is offline"):
            fetch("biomedclip", base, sandbox, force=True)
    finally:
        server.shutdown()
        server.server_close()
    torch.save({"x": torch.ones(1)}, source / "resnet18-f37072fd.pth")
    with pytest.raises(UsageError, match="begins with f37072fd"):
        fetch("torchvision/resnet18", str(source), sandbox)
    (source / "fold_0").mkdir()
    torch.save({"network_weights": _state()}, source / "fold_0" / "checkpoint_final.pth")
    with pytest.raises(UsageError, match=r"lacks plans\.json"):
        fetch("totalsegmentator/total-3mm", str(source), sandbox)


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setenv("M3B_WEIGHTS", str(tmp_path / "store"))
    torch.save({"state_dict": _state()}, tmp_path / "small_ep4k.model")
    done = CliRunner().invoke(app, ["models", "fetch", "stunet/small", "--from", str(tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["tensors"] == 2
    command = [
        "models",
        "convert",
        str(tmp_path / "small_ep4k.model"),
        "-o",
        str(tmp_path / "mine"),
        "--entry",
        "stunet/small",
    ]
    assert "2 tensors" in CliRunner().invoke(app, command).output
    assert json.loads((tmp_path / "mine" / "m3b-start.json").read_text())["entry"] == "stunet/small"
    again = CliRunner().invoke(app, command)
    assert isinstance(again.exception, UsageError)


@pytest.mark.parametrize("index_text", ["[]", "{", '{"weight_map": {}}', '{"weight_map": ["a"]}', '{"metadata": {}}'])
def test_a_list_of_parts_that_names_none_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index_text: str
) -> None:
    monkeypatch.setenv("M3B_WEIGHTS", str(tmp_path / "store"))
    (tmp_path / "here").mkdir()
    (tmp_path / "here/model.safetensors.index.json").write_text(index_text)
    with pytest.raises(UsageError, match="names no parts of the weights"):
        fetch("torchvision/resnet18", str(tmp_path / "here"), choose_sandbox("auto"))
    assert not (tmp_path / "store/torchvision/resnet18").exists()


def test_weights_in_parts_are_taken_together_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors.torch import save_file

    monkeypatch.setenv("M3B_WEIGHTS", str(tmp_path / "store"))
    source = tmp_path / "here"
    source.mkdir()
    parts = {name: f"model-{at}-of-2.safetensors" for at, name in enumerate(_state(), start=1)}
    (source / "model.safetensors.index.json").write_text(json.dumps({"weight_map": parts}))
    (first, first_tensor), (second, second_tensor) = _state().items()
    save_file({first: first_tensor}, str(source / parts[first]))
    with pytest.raises(UsageError, match="one of 2 parts"):
        fetch("torchvision/resnet18", str(source), choose_sandbox("auto"))
    save_file({second: second_tensor}, str(source / parts[second]))
    folder, conversion = fetch("torchvision/resnet18", str(source), choose_sandbox("auto"))
    assert conversion.tensors == 2
    assert all((folder / name).is_file() for name in parts.values())
