"""Muon for convolutions: what it moves and how, beside PyTorch's for matrices, and trainings with it that go on after a kill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from segmentation_kit import assemble_segmentation, small_plan
from template_kit import call, load
from torch import nn

optimizers = load("optimizers")
UNET: dict[str, Any] = {
    "filters": [8, 16, 32],
    "strides": [[1, 1, 1], [2, 2, 2], [2, 2, 2]],
    "kernels": [[3, 3, 3]] * 3,
    "deep_supervision": True,
}
PLAN: dict[str, Any] = {"optimizer": "muon", "channels": 1, "classes": ["a", "b"], "network": {"name": "unet"}}


def unet() -> nn.Module:
    torch.manual_seed(0)
    model: nn.Module = load("unet").UNet(3, 1, 3, UNET)
    return model


@settings(max_examples=25)
@given(rows=st.integers(4, 40), columns=st.integers(4, 60), scale=st.floats(1e-6, 1e6), seed=st.integers(0, 9))
def test_an_orthogonal_matrix_keeps_the_directions_and_levels_their_sizes(
    rows: int, columns: int, scale: float, seed: int
) -> None:
    torch.manual_seed(seed)
    left_basis, _ = torch.linalg.qr(torch.randn(rows, rows))
    right_basis, _ = torch.linalg.qr(torch.randn(columns, columns))
    rank = min(rows, columns)
    sizes = torch.linspace(0.1, 1.0, rank)
    matrix = scale * left_basis[:, :rank] * sizes @ right_basis[:, :rank].T
    orthogonal = optimizers.orthogonal(matrix)
    assert orthogonal.shape == matrix.shape
    turned = left_basis[:, :rank].T @ orthogonal @ right_basis[:, :rank]
    assert float((turned - torch.diag(turned.diagonal())).abs().max()) < 1e-2
    assert float(turned.diagonal().min()) > 0.6
    assert float(turned.diagonal().max()) < 1.3


@pytest.mark.parametrize("shape", [(24, 16), (16, 24)])
def test_matrices_move_as_with_pytorchs_own(shape: tuple[int, int]) -> None:
    """That one orthogonalises in bfloat16."""
    if not hasattr(torch.optim, "Muon"):
        pytest.skip("this PyTorch has no Muon")
    torch.manual_seed(1)
    linear, torch_linear = nn.Linear(*reversed(shape), bias=False), nn.Linear(*reversed(shape), bias=False)
    torch_linear.load_state_dict(linear.state_dict())
    start = linear.weight.detach().clone()
    muon = optimizers.Muon(linear, [linear.weight], 0.02, 0.1)
    torch_muon = torch.optim.Muon(torch_linear.parameters(), lr=0.02, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for _ in range(5):
        gradient = torch.randn(shape)
        for model, optimizer in ((linear, muon), (torch_linear, torch_muon)):
            model.weight.grad = gradient.clone()
            optimizer.step()
    moved, expected = linear.weight.detach() - start, torch_linear.weight.detach() - start
    assert float((moved - expected).norm() / expected.norm()) < 0.05


def test_kernels_between_hidden_layers_are_muons_and_all_else_is_adamws() -> None:
    model = unet()
    kernel_ids = {id(value) for value in optimizers.hidden_kernels(model, PLAN)}
    other_kernels = [name for name, value in model.named_parameters() if value.ndim > 1 and id(value) not in kernel_ids]
    assert other_kernels == ["down.0.conv1.weight", "heads.0.weight", "heads.1.weight"]
    assert all(value.ndim == 5 for value in model.parameters() if id(value) in kernel_ids)
    optimizer = optimizers.Muon(model, optimizers.hidden_kernels(model, PLAN), 0.01, 0.02)
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(list(model.parameters()))
    decays = {len(value.shape): group["weight_decay"] for group in optimizer.param_groups for value in group["params"]}
    assert decays == {5: 0.02, 1: 0.0}


@pytest.mark.parametrize("changes", [{"optimizer": "adamw"}, {"optimizer": None}, {"network": {"pretrained": "x"}}])
def test_adamw_has_everything_where_the_plan_says_so_or_starts_from_weights(changes: dict[str, Any]) -> None:
    assert optimizers.hidden_kernels(unet(), PLAN | changes) == []


def test_an_optimizer_that_is_not_known_ends_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"'sgd' in plan\.json: known are adamw and muon"):
        optimizers.hidden_kernels(unet(), PLAN | {"optimizer": "sgd"})
    with pytest.raises(SystemExit, match="optimizer=sgd: must be adamw or muon"):
        load("plan_settings").apply_override({"task": "segmentation"}, "optimizer=sgd")


def take_steps(model: nn.Module, optimizer: Any, count: int, first: int = 0) -> None:
    for at in range(first, first + count):
        torch.manual_seed(at)
        loss = sum(out.square().mean() for out in model(torch.randn(1, 1, 8, 8, 8)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_a_state_that_was_saved_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    run_weights = []
    for saved in (False, True):
        model = unet()
        optimizer = optimizers.Muon(model, optimizers.hidden_kernels(model, PLAN), 0.01, 0.01)
        take_steps(model, optimizer, 3)
        if saved:
            torch.save(optimizer.state_dict(), tmp_path / "state.pt")
            optimizer = optimizers.Muon(model, optimizers.hidden_kernels(model, PLAN), 0.01, 0.01)
            optimizer.load_state_dict(torch.load(tmp_path / "state.pt"))
        take_steps(model, optimizer, 2, first=3)
        run_weights.append({name: value.detach().clone() for name, value in model.named_parameters()})
    for name, value in run_weights[0].items():
        torch.testing.assert_close(run_weights[1][name], value)


def test_either_memory_layout_is_moved_alike() -> None:
    moved_kernels = []
    for last in (False, True):
        model = unet().to(memory_format=torch.channels_last_3d if last else torch.contiguous_format)
        optimizer = optimizers.Muon(model, optimizers.hidden_kernels(model, PLAN), 0.01, 0.01)
        take_steps(model, optimizer, 2)
        moved_kernels.append(model.up[0].block.conv1.weight.detach())
    torch.testing.assert_close(moved_kernels[1], moved_kernels[0], rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("optimizer", ["muon", pytest.param("adamw", marks=pytest.mark.slow)])
def test_a_mask_model_is_trained_and_delivered_with_either(tmp_path: Path, optimizer: str) -> None:
    project = assemble_segmentation(tmp_path / "project")
    call(project, "example/make_example.py", "--cases", "12", "--size", "16")
    assert small_plan(project, max_steps=6, optimizer=optimizer)["optimizer"] == optimizer
    assert "done: validation" in call(project, "train.py").stdout
    call(project, "export.py")
