"""Muon: its products against a decomposition, its updates against PyTorch's own."""

import pytest
import torch
import torch.distributed as dist
from conftest import CPU, changed
from torch import Tensor, nn

from mtkit.config import TrainConfig
from mtkit.train.memory import moments_to_come
from mtkit.train.optimizer import Muon, new_optimizer, orthogonal
from mtkit.train.trainer import Trainer


def parameters(*shapes: tuple[int, ...], seed: int = 1) -> list[nn.Parameter]:
    """Random parameters in float32."""
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


def give_gradients(given: list[nn.Parameter], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in given:
        parameter.grad = torch.randn(parameter.shape, generator=generator)


@pytest.mark.parametrize(("rows", "columns"), [(5, 5), (3, 8), (8, 3)])
def test_the_singular_values_are_changed_by_the_polynomial_and_the_vectors_stay(rows, columns):
    generator = torch.Generator().manual_seed(2)
    matrices = torch.randn(2, rows, columns, generator=generator, dtype=torch.float64)
    left, values, right = torch.linalg.svd(matrices, full_matrices=False)
    values = values / values.square().sum(dim=1, keepdim=True).sqrt()
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    expected = left @ torch.diag_embed(values) @ right
    assert torch.allclose(orthogonal(matrices), expected, rtol=0, atol=1e-10)


def test_a_matrix_whose_gradients_were_all_zero_stays():
    (matrix,) = parameters((3, 4))
    before = matrix.detach().clone()
    muon = Muon([matrix], None, dtype=torch.float32)
    muon.param_groups[0]["lr"] = 0.01
    for _ in range(2):
        matrix.grad = torch.zeros_like(matrix)
        muon.step()
    assert torch.equal(matrix.detach(), before)


def test_its_updates_are_those_of_pytorch():
    shapes = [(4, 6), (6, 4), (4, 6), (5, 5)]
    ours, theirs = parameters(*shapes), parameters(*shapes)
    before = [matrix.detach().clone() for matrix in ours]
    muon = Muon(ours, None, dtype=torch.bfloat16)
    how = {"lr": 0.01, "momentum": 0.95, "adjust_lr_fn": "match_rms_adamw"}
    expected = torch.optim.Muon(theirs, weight_decay=0.0, **how)
    muon.param_groups[0]["lr"] = 0.01
    for step in range(4):
        for matrices in (ours, theirs):
            give_gradients(matrices, seed=step)
        muon.step()
        expected.step()
    for mine, other, first in zip(ours, theirs, before, strict=True):
        # Three significant digits of bfloat16, over four updates.
        change = (other - first).norm()
        assert (mine - other).norm() < 0.02 * change


def test_matrices_of_layers_are_for_muon_and_all_else_is_for_adam():
    shapes: dict[str, tuple[int, ...]] = {
        "embedding.weight": (7, 4),
        "encoder.0.feed_forward.inner.weight": (6, 4),
        "encoder.0.feed_forward.inner.bias": (6,),
        "decoder.0.self_attention.in_proj.weight": (12, 4),
        "decoder.0.norm.weight": (4,),
    }

    def updated(optimizer: str) -> dict[str, Tensor]:
        named = dict(zip(shapes, parameters(*shapes.values()), strict=True))
        chosen = new_optimizer(named, TrainConfig(optimizer=optimizer), dtype=torch.float32)  # type: ignore[arg-type]
        for step in range(3):
            for group in chosen.param_groups:
                group["lr"] = 0.01
            give_gradients(list(named.values()), seed=step)
            chosen.step()
        return {name: parameter.detach() for name, parameter in named.items()}

    adam, muon = updated("adam"), updated("muon")
    same = {name for name in shapes if torch.equal(adam[name], muon[name])}
    others = {"embedding.weight", "decoder.0.norm.weight", "encoder.0.feed_forward.inner.bias"}
    assert same == others


def test_without_matrices_to_train_everything_is_for_adam():
    named = {"embedding.weight": parameters((7, 4))[0]}
    optimizer = new_optimizer(named, TrainConfig(optimizer="muon"), dtype=torch.float32)
    assert type(optimizer) is torch.optim.Adam


@pytest.mark.parametrize(
    ("settings", "share"),
    [({}, 1), ({"freeze": ("embedding",)}, 1), ({"lora_rank": 2}, 1), ({"optimizer": "muon"}, 2)],
)
def test_the_bytes_of_its_state_are_known_before_an_update(settings, share, config, tiny_data):
    trainer = Trainer(changed(config, "train", **settings), tiny_data, device=CPU)
    expected = moments_to_come(trainer.optimizer)
    trainer.update(next(trainer.batches))
    tensors = [x for state in trainer.optimizer.state.values() for x in state.values()]
    # Without the counter of steps that each parameter has.
    actual = sum(tensor.nbytes for tensor in tensors if tensor.ndim)
    assert actual <= expected <= share * actual
    assert moments_to_come(trainer.optimizer) == 0


@pytest.mark.parametrize(("rank", "numbers"), [(0, 3 * 4 + 3), (1, 2 * 4 + 2)])
def test_of_a_sharded_model_a_worker_has_the_moments_of_its_own_rows(rank: int, numbers: int):
    # They take a second.
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    # No message is sent, because the group has one process.
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=2)
    try:
        # A matrix of five rows of four numbers, and five biases: three rows for the first worker.
        layer = nn.Linear(4, 5)
        fully_shard(layer, mesh=init_device_mesh("cpu", (2,)))
        optimizer = torch.optim.AdamW(layer.parameters())
        # Two moments of four bytes for each number.
        assert moments_to_come(optimizer) == 2 * 4 * numbers
    finally:
        dist.destroy_process_group()
