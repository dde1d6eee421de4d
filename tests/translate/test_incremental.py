"""Steps of the decoder against the whole model, and ensembles."""

import pytest
import torch
import torch.nn.functional as F
from support.plain_search import plain_search
from support.translators import loaded

from mtkit.config import ModelConfig
from mtkit.kernels.cpu_loss import in_whole_tiles, output_by_tiles
from mtkit.model import Transformer
from mtkit.tokenizer import EOS_ID, PAD_ID
from mtkit.translate import Translator
from mtkit.translate.pytorch.incremental import Engine


@pytest.mark.parametrize("vocab", [300, 256])
@pytest.mark.parametrize("biased", [True, False])
def test_the_padded_matrix_of_a_gpu_gives_the_same_logits(vocab: int, biased: bool):
    x, weight = torch.randn(3, 7, 16), torch.randn(vocab, 16)
    bias = torch.randn(vocab) if biased else None
    matrix = in_whole_tiles(weight)
    logits = output_by_tiles(x, matrix, bias, size=vocab)
    assert torch.allclose(logits, F.linear(x, weight, bias), atol=1e-5)
    # A vocabulary of whole tiles needs no other matrix.
    assert (matrix is weight) == (vocab == 256)


@pytest.mark.parametrize("beam_size", [1, 4, 10])
@pytest.mark.parametrize("alpha", [0.0, 0.6])
@pytest.mark.parametrize("path", ["plain", "device"])
def test_the_search_finds_what_a_plain_one_finds(tiny_run, beam_size, alpha, path):
    plain = Translator.load(tiny_run, device="cpu", prepared=False).model
    changes = {"beam_size": beam_size, "length_penalty": alpha, "max_extra_length": 4}
    config = tiny_run.config.decode.model_copy(update=changes | {"gpu_path": path})
    translator = loaded(tiny_run, config=config)
    lines = ["one two three", "nine", "four four five one two six", "seven eight", "two"] * 2
    for line, (best,) in zip(lines, translator.translate_nbest(lines, n_best=1), strict=True):
        ids = [*translator.tokenizer.encode(line), EOS_ID]
        given = {"beam_size": beam_size, "alpha": alpha, "limit": len(ids) + 4}
        score, tokens = plain_search(plain, ids, **given)
        assert best.text == translator.tokenizer.decode(tokens)
        assert best.score == pytest.approx(score, abs=1e-5)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_under_autocast_a_step_rounds_no_more_than_the_forward_pass(norm):
    # Sums of residuals stay in float32; only matrix products are rounded.
    config = ModelConfig(d_model=64, d_ff=128, n_heads=4, decoder_layers=6, norm=norm)
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
        for rounded in (whole, steps):
            errors.append((rounded - wanted).abs().mean().item())
    assert errors[1] < 1.1 * errors[0]
