"""The log-probabilities that models give to given translations."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch

from mtkit.base.errors import MtkitError
from mtkit.batch_plan import plan_batches
from mtkit.batches import pad_ids
from mtkit.kernels.cpu_loss import widened
from mtkit.model import Transformer
from mtkit.search_settings import length_penalty
from mtkit.tokenizer import BOS_ID, EOS_ID
from mtkit.translate.decoding import NO_NUMBERS
from mtkit.translate.doubts import place_of
from mtkit.translate.pytorch.ensemble import mean_probability
from mtkit.translate.reading import pair_windows
from mtkit.translate.requests import Translation
from mtkit.translate.sentence_reader import SentenceReader


@torch.inference_mode()
def given_log_probs(
    models: Sequence[Transformer],
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    *,
    certain: Sequence[int] = (),
) -> list[list[float]]:
    """The log-probabilities of given translations, one for each token and for EOS.

    Sources and targets are ids without EOS. Of several models, the mean probability is used. The
    tokens in `certain`, language tags, have 0, as in a search (`Constraints.forbidden`). EOS has
    none after as many tokens as there are learned positions.
    """
    most = min(filter(None, (model.config.max_tokens for model in models)), default=None)
    device = models[0].embedding.weight.device
    tgt_out = pad_ids([[*ids, EOS_ID] for ids in targets])[:, :most].to(device)
    tgt_in = pad_ids([[BOS_ID, *ids] for ids in targets])[:, :most].to(device)
    src = pad_ids([[*ids, EOS_ID] for ids in sources]).to(device)
    is_certain = torch.isin(tgt_out, torch.tensor(certain, dtype=torch.int64, device=device))
    by_model = []
    for model in models:
        logits = widened(model(src, tgt_in))
        truth = logits.gather(-1, tgt_out.unsqueeze(-1)).squeeze(-1)
        by_model.append((truth - logits.logsumexp(-1)).double().masked_fill(is_certain, 0.0))
    log_probs = mean_probability(by_model).tolist()
    return [row[: len(ids) + 1] for ids, row in zip(targets, log_probs, strict=True)]


def score_pairs(
    models: Sequence[Transformer],
    reader: SentenceReader,
    sources: Iterable[str],
    translations: Iterable[str],
) -> Iterator[Translation]:
    """Score pairs of a line and a given translation, in order; 0 if both are blank."""
    config, task, tokenizer = reader.runs.config, reader.runs.task, reader.runs.vocabularies.tgt
    for first, lines, given in pair_windows(sources, translations):
        numbers = range(first, first + len(lines))
        src = reader.encode(list(map(task.source_text, lines)), numbers)
        tgt = tokenizer.encode_batch(list(map(task.target_text, given, numbers)))
        results = list(map(Translation, given))
        wanted = np.array([i for i in range(len(src)) if src[i] or tgt[i]], dtype=np.int64)
        tgt = [
            reader.target(ids, place_of(number, None))
            for number, ids in zip(numbers, tgt, strict=True)
        ]
        lengths = [np.array([len(side[i]) + 1 for i in wanted], np.int64) for side in (src, tgt)]
        longest = max(int(side.max(initial=0)) for side in lengths)
        # The logits of all tokens are computed at once, so a GPU too gets no more than a CPU.
        budget = max(config.batch_tokens_on("cpu"), longest)
        for rows in plan_batches(*lengths, budget=budget):
            batch = wanted[rows].tolist()
            some = [tgt[i] for i in batch]
            of_batch = [src[i] for i in batch]
            scored = given_log_probs(models, of_batch, some, certain=tokenizer.tag_ids)
            for index, ids, log_probs in zip(batch, some, scored, strict=True):
                # Sums of many tokens are computed in float64.
                log_prob = sum(log_probs)
                if math.isnan(log_prob):
                    raise MtkitError(f"line {first + index}: the model {NO_NUMBERS}")
                penalty = length_penalty(
                    len(log_probs), config.length_penalty, config.length_penalty_form
                )
                pieces, gains = tuple(map(tokenizer.piece, [*ids, EOS_ID])), tuple(log_probs)
                results[index] = Translation(
                    given[index], log_prob / penalty, log_prob, pieces=pieces, log_probs=gains
                )
        yield from results
