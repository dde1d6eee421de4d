"""What a decoding step asks of a GPU, counted without one: kernels, casts, waits and copies."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from conftest import UNTRAINED, changed, slow
from support.counted import GPU, Counts, pretended_gpu

from mtkit.data import PreparedData
from mtkit.kernels.cpu_loss import GPU_TILE
from mtkit.model import Transformer
from mtkit.tokenizer import PAD_ID
from mtkit.translate import LoadedRuns, Translator
from mtkit.translate.pytorch.decoder import Torch
from mtkit.translate.pytorch.incremental import Engine

# Between these steps of a search of `LENGTH` steps no sentence ends.
FROM, TO, LENGTH = 4, 20, 24
# Of one step: the host waits for the device once in eight steps, and copies nothing to it.
WAITS, UPLOADS = 1 / 8, 0

VARIANTS: dict[str, dict[str, Any]] = {
    "float32": {},
    "bf16": {},
    "learned positions": {"positions": "learned"},
    "window": {"attention_window": 2},
    "norm first": {"norm": "pre"},
    "SiLU": {"activation": "silu"},
    "other head widths": {"d_k": 8, "d_v": 24},
    "output bias": {"output_bias": True},
}
# Constraints on the outputs of the search.
CONSTRAINED: dict[str, dict[str, Any]] = {
    "no repeats": {"no_repeat_ngram": 2},
    "prefixes": {"no_repeat_ngram": 3},
}


def counted(
    name: str, data: PreparedData, lines: Sequence[str], beam_size: int, patch: pytest.MonkeyPatch
) -> Counts:
    """What the steps from `FROM` to `TO` of a translation by a random model ask of a GPU."""
    config = changed(UNTRAINED, "model", **VARIANTS.get(name, {}))
    # Every sentence gets as many steps.
    length = {"max_extra_length": LENGTH, "max_length": LENGTH, "min_length": LENGTH}
    changes = {**length, **CONSTRAINED.get(name, {}), "beam_size": beam_size}
    settings = changed(config, "decode", **changes).decode
    vocabularies = data.tokenizers()
    before: list[Counts] = []
    step = Engine.step

    def noted(*args: Any) -> torch.Tensor:
        before.append(counts.copy())
        return step(*args)

    torch.manual_seed(1)
    model = Transformer(config.model, len(vocabularies.tgt), PAD_ID).eval()
    # Only then is there anything to fill up.
    assert model.vocab_size % GPU_TILE
    patch.setattr(Engine, "step", noted)
    with pretended_gpu() as counts:
        model.to(GPU, torch.bfloat16 if name == "bf16" else torch.float32)
        runs = LoadedRuns(vocabularies, settings)
        translator = Translator(runs, Torch([model], runs, GPU))
        prefixes = ["eins zwei drei vier fünf"] * len(lines) if name == "prefixes" else None
        nbests = translator.translate_nbest(lines, n_best=1, prefixes=prefixes)
        assert len(list(nbests)) == len(lines)
    patch.undo()
    return before[TO] - before[FROM]


@pytest.mark.parametrize("beam_size", [slow(1), 4])
@pytest.mark.parametrize(
    "name",
    [name if name in ("bf16", *CONSTRAINED) else slow(name) for name in (*VARIANTS, *CONSTRAINED)],
)
def test_a_step_costs_the_same_for_any_batch(name, beam_size, tiny_data, tiny_text, monkeypatch):
    lines = tiny_text.test[0].read_text().splitlines()
    few, many = (
        counted(name, tiny_data, some, beam_size, monkeypatch) for some in (lines[:3], lines[:12])
    )
    assert many.kernels == few.kernels
    assert many.casts == few.casts
    steps = TO - FROM
    assert many.waits.total() <= WAITS * steps
    assert many.uploads.total() <= UPLOADS * steps
    # The cache gets room for eight steps at a time; the matrix of the output layer is padded once.
    assert many.kernels["constant_pad_nd"] <= steps / 8
