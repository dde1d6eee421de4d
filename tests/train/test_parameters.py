"""Training a part of the weights: low-rank changes, frozen parameters, a moving average."""

import re

import pytest
import torch
from support.training import last_weights
from torch import Tensor, nn

from mtkit.base.errors import MtkitError
from mtkit.config import TrainConfig, dump_config, load_config
from mtkit.train.parameters import TrainedParameters

FROZEN = {"freeze": ("embedding", "encoder.*.self_attention.*")}


class Two(nn.Module):
    """A linear map after another, with a gradient that is easy to have from PyTorch."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 5)
        self.second = nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.second(self.first(x).tanh())
        return hidden.square().sum()


@pytest.mark.usefixtures("in_float64")
def test_a_low_rank_change_is_trained_as_if_the_matrix_were_composed_in_the_forward_pass():
    torch.manual_seed(1)
    model, x = Two(), torch.randn(7, 3)
    changes = TrainConfig(lora_rank=2, lora_alpha=3.0, lora_matrices=("first",))
    trained = TrainedParameters(model, changes)
    assert list(trained.named) == ["first.weight.lora_a", "first.weight.lora_b"]
    assert trained.count == 2 * 3 + 5 * 2
    fixed = {name: value.clone() for name, value in model.state_dict().items()}
    a, b = (parameter.detach().clone() for parameter in trained.named.values())
    assert not b.any()
    ours = torch.optim.Adam(trained.named.values(), lr=0.1)
    a.requires_grad_()
    b.requires_grad_()
    theirs = torch.optim.Adam([a, b], lr=0.1)
    for step in range(1, 4):
        model(x).backward()
        trained.before_update()
        ours.step()
        model.zero_grad()
        trained.after_update(step)

        composed = fixed["first.weight"] + 1.5 * b @ a
        hidden = torch.tanh(x @ composed.t() + fixed["first.bias"])
        loss = (hidden @ fixed["second.weight"].t() + fixed["second.bias"]).square().sum()
        theirs.zero_grad()
        loss.backward()
        theirs.step()
        expected = fixed["first.weight"] + 1.5 * b.detach() @ a.detach()
        torch.testing.assert_close(model.first.weight.detach(), expected, rtol=1e-12, atol=1e-12)
    for name, value in model.state_dict().items():
        assert (name == "first.weight") != torch.equal(value, fixed[name])


def test_frozen_parameters_stay_and_the_others_change(tunings, tiny_run):
    tunings.tune("r", **FROZEN)
    base = last_weights(tiny_run.path)
    for name, weight in last_weights(tunings.folder / "r").items():
        is_frozen = re.match(r"embedding|encoder.*\.self_attention", name) is not None
        assert torch.equal(weight, base[name]) == is_frozen, name


def test_frozen_parameters_have_nothing_in_the_optimizer(tunings):
    tunings.tune("r", freeze=("encoder", "decoder"))
    names = tunings.open("r").checkpoints()[-1].load_optimizer()
    assert {name.rpartition(".")[0] for name in names} == {"embedding.weight"}


@pytest.mark.usefixtures("in_float64")
def test_the_moving_average_is_the_mean_of_the_weights_with_falling_shares():
    torch.manual_seed(1)
    model = Two()
    trained = TrainedParameters(model, TrainConfig(ema=0.5))
    expected = model.first.weight.detach().clone()
    for step in range(1, 8):
        with torch.no_grad():
            model.first.weight.add_(step)
        trained.after_update(step)
        # 2/11, 3/12, 4/13 ... until a half.
        share = min(0.5, (1 + step) / (10 + step))
        expected = share * expected + (1 - share) * model.first.weight.detach()
    torch.testing.assert_close(trained.weights()["first.weight"], expected)
    raw = model.first.weight.detach().clone()
    with trained.averaged():
        torch.testing.assert_close(model.first.weight.detach(), expected)
    assert torch.equal(model.first.weight.detach(), raw)


def test_the_moving_average_is_what_is_validated_and_saved(tunings, tiny_run):
    # So slow an average of so many steps stays near the beginning.
    tunings.tune("plain")
    tunings.tune("mean", ema=0.999)
    plain, mean = last_weights(tunings.folder / "plain"), last_weights(tunings.folder / "mean")
    name = "decoder.0.feed_forward.inner.weight"
    base = last_weights(tiny_run.path)[name]
    assert 0 < (mean[name] - base).norm() < (plain[name] - base).norm()
    state = tunings.open("mean").checkpoints()[-1].load_optimizer()
    # The same training, which does not depend on the average.
    assert torch.equal(state[f"{name}.value"], plain[name])
    assert tunings.rows("plain", "valid_loss") != tunings.rows("mean", "valid_loss")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"freeze": ("encoder,decoder",)}, r"; for a list, write \[encoder,decoder\]$"),
        ({"freeze": ("encodr",)}, "train.freeze: no parameter has the name encodr; they begin"),
        ({"freeze": ("first", "second")}, "train.freeze: nothing is left to train"),
        ({"lora_rank": 4}, "train.lora_matrices: no parameter has the name .attention"),
        (
            {"lora_rank": 4, "lora_matrices": ("first",)},
            "train.lora_rank: 4 is more than the smaller side of first.weight, which is 5 by 3",
        ),
        (
            {"lora_rank": 1, "lora_matrices": ("first",), "freeze": ("first",)},
            "train.lora_matrices: no matrix is left to train",
        ),
    ],
)
def test_names_that_are_not_there_and_nothing_to_train_are_refused(given, message):
    with pytest.raises(MtkitError, match=message):
        TrainedParameters(Two(), TrainConfig(**given))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["train.learning_rate=1e-4"], "train.learning_rate: the schedule paper has a formula"),
        (["train.schedule=linear"], "train.learning_rate: the schedule linear needs it"),
        (["train.fsdp=true", "train.ema=0.9"], "train.ema: cannot be combined with train.fsdp"),
        (["train.freeze=[1]"], "train.freeze.0: expected a valid string, not 1"),
        (["train.freeze=12"], "train.freeze: expected a name, or a list of names, not 12"),
        (['train.freeze=[""]'], "train.freeze.0: expected a name, or a list of names, not ''"),
        (["train.lora_alpha=2.0"], "train.lora_alpha: has no effect without train.lora_rank"),
        (["train.lora_alpha=1e308"], "train.lora_alpha: expected .*1000000"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(given, message):
    with pytest.raises(MtkitError, match=message):
        load_config("base", given)


def test_names_may_be_a_list_or_one_and_are_read_back(tmp_path):
    given = ["train.freeze=encoder", "train.lora_rank=1", "train.lora_matrices=[a, b]"]
    config = load_config("base", given)
    assert config.train.freeze == ("encoder",)
    assert config.train.lora_matrices == ("a", "b")
    (tmp_path / "c.yaml").write_text(dump_config(config))
    assert load_config(str(tmp_path / "c.yaml")) == config
