"""Steps of the decoder against the whole model, and ensembles."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from support.plain_search import plain_search
from torch import Tensor

from mtkit.config import ModelConfig
from mtkit.kernels.cpu_loss import in_whole_tiles, output_by_tiles
from mtkit.model import Transformer
from mtkit.run_folder import Run
from mtkit.search_settings import SearchSettings
from mtkit.tokenizer import BOS_ID, EOS_ID, PAD_ID
from mtkit.translate import Translator
from mtkit.translate.pytorch.ensemble import Ensemble
from mtkit.translate.pytorch.incremental import Engine
from mtkit.translate.search.beam import beam_search


@pytest.mark.parametrize("vocab", [300, 256])
@pytest.mark.parametrize("biased", [True, False])
def test_the_padded_matrix_of_a_gpu_gives_the_same_logits(vocab: int, biased: bool) -> None:
    x, weight = torch.randn(3, 7, 16), torch.randn(vocab, 16)
    bias = torch.randn(vocab) if biased else None
    matrix = in_whole_tiles(weight)
    logits = output_by_tiles(x, matrix, bias, size=vocab)
    assert torch.allclose(logits, F.linear(x, weight, bias), atol=1e-5)
    # A vocabulary of whole tiles needs no other matrix.
    assert (matrix is weight) == (vocab == 256)


def test_a_source_of_its_own_vocabulary_is_decoded_as_the_model_does(uneven: Run) -> None:
    plain = Translator.load(uneven, device="cpu", prepared=False).model
    # The last ids of either side.
    V_src, V_tgt = plain.src_vocab_size, plain.vocab_size
    assert V_src is not None
    assert V_src < V_tgt
    src = torch.tensor([[5, 6, V_src - 1, EOS_ID], [8, EOS_ID, PAD_ID, PAD_ID]])
    prefix = torch.tensor([[BOS_ID, 9, V_tgt - 1], [BOS_ID, 11, V_tgt - 2]])
    engine = Engine(plain)
    with torch.inference_mode():
        cache = engine.start(src, 1)
        for t in range(prefix.shape[1]):
            wanted = plain(src, prefix[:, : t + 1])[:, -1].log_softmax(-1)
            found = engine.step(prefix[:, t], torch.arange(len(src)), cache)
            assert found.dtype == torch.float32
            assert found.shape == (len(src), plain.vocab_size)
            assert (found - wanted).abs().max() < 1e-5


@pytest.mark.parametrize("beam_size", [1, 4, 10])
@pytest.mark.parametrize("alpha", [0.0, 0.6])
@pytest.mark.parametrize("path", ["plain", "device"])
def test_the_search_finds_what_a_plain_one_finds(
    tiny_run: Run, beam_size: int, alpha: float, path: str
) -> None:
    plain = Translator.load(tiny_run, device="cpu", prepared=False).model
    changes = {"beam_size": beam_size, "length_penalty": alpha, "max_extra_length": 4}
    given = {"engine": "torch", "gpu_path": path}
    config = tiny_run.config.decode.model_copy(update=changes | given)
    translator = Translator.load(tiny_run, device="cpu", config=config)
    lines = ["one two three", "nine", "four four five one two six", "seven eight", "two"] * 2
    for line, (found,) in zip(lines, translator.translate_nbest(lines, n_best=1), strict=True):
        ids = [*translator.tokenizer.encode(line), EOS_ID]
        score, tokens = plain_search(
            plain, ids, beam_size=beam_size, alpha=alpha, limit=len(ids) + 4
        )
        assert found.text == translator.tokenizer.decode(tokens)
        assert found.score == pytest.approx(score, abs=1e-5)


# Ensembles

V = 40
SOURCES = [[5, 6, 7, 8], [9, 10], [11, 12, 13], [14], [15, 16, 5, 9, 22], [30, 31]]


def untrained(seed: int, *, d_model: int, layers: int) -> Transformer:
    torch.manual_seed(seed)
    config = ModelConfig(
        encoder_layers=layers, decoder_layers=layers, d_model=d_model, d_ff=48, n_heads=2
    )
    return Transformer(config, V, PAD_ID).eval()


def two_models() -> list[Transformer]:
    return [untrained(1, d_model=16, layers=1), untrained(2, d_model=24, layers=2)]


def sources() -> Tensor:
    src = torch.full((len(SOURCES), 6), PAD_ID)
    for row, ids in enumerate(SOURCES):
        src[row, : len(ids) + 1] = torch.tensor([*ids, EOS_ID])
    return src


class MeanOfModels:
    """The mean of what whole forward passes say, by adding up probabilities in float64."""

    def __init__(self, models: list[Transformer]) -> None:
        self.models = models

    def __call__(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        probabilities = [model(src, tgt_in).double().softmax(-1) for model in self.models]
        return torch.stack(probabilities).mean(0).log()


@torch.inference_mode()
def test_the_search_with_an_ensemble_finds_what_a_plain_one_finds() -> None:
    models = two_models()
    ensemble = Ensemble([Engine(model) for model in models])
    found = beam_search(
        ensemble.step,
        ensemble.start(sources(), 3),
        SearchSettings([8] * len(SOURCES), BOS_ID, EOS_ID, alpha=0.6),
        beam_size=3,
    )
    for ids, (best,) in zip(SOURCES, found, strict=True):
        mean = MeanOfModels(models)
        score, tokens = plain_search(mean, [*ids, EOS_ID], beam_size=3, alpha=0.6, limit=8)
        assert best.tokens == tokens
        assert best.score == pytest.approx(score, abs=1e-5)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_under_autocast_a_step_rounds_no_more_than_the_forward_pass(norm: str) -> None:
    # Sums of residuals stay in float32; only matrix products are rounded.
    config = ModelConfig.model_validate(
        {"d_model": 64, "d_ff": 128, "n_heads": 4, "decoder_layers": 6, "norm": norm}
    )
    torch.manual_seed(0)
    model = Transformer(config, 50, PAD_ID).eval()
    src, prefix = torch.tensor([[5, 6, 7, EOS_ID]] * 64), torch.arange(4, 36).view(1, -1)
    errors = []
    with torch.inference_mode():
        wanted = model(src[:1], prefix).log_softmax(-1)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            whole = model(src[:1], prefix).float().log_softmax(-1)
            engine = Engine(model)
            cache = engine.start(src[:1], 1)
            row = torch.zeros(1, dtype=torch.int64)
            steps = torch.stack([engine.step(prefix[:, t], row, cache) for t in range(32)], dim=1)
        for found in (whole, steps):
            errors.append((found - wanted).abs().mean().item())
    assert errors[1] < 1.1 * errors[0]
