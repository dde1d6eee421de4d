"""Diagnoses a training that learns little, in plain sentences.

This module decides which facts are reported, from which value on, and what to do about each. The
trainer collects the facts, and prints the sentences. A run without problems gives no sentence.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from mtkit.config import Config, TrainConfig
from mtkit.train.schedule import Schedule, learning_rate, setting_of_rate

# A model has learned below perplexity 5 on the validation set, where the paper's own models end
# (Table 3: 4.3 to 6.1), and below half the loss of guessing, which matters for small vocabularies.
# Its learning rate is then not reported: it works for toy data.
LEARNED, LEARNED_SHARE = math.log(5.0), 0.5

# The loss of guessing by frequency is the entropy, and validation text differs a little from
# training text. A useful model is far below: `small` on Multi30k is at 0.7 after 300 updates.
GUESSING = 0.95

# In fewer sentences than this, a share is not reliable.
FEW = 5
# `small` on Multi30k copies none of 1,014 sentences, and repeats itself in 7. Copied names and
# exclamations are right even if the reference has another spelling.
COPIED = 0.05
# Even in subtitles, with many lines like "Yes.", few different sources have the same translation.
SAME_OUTPUT = 0.1
# Greedy search, which validation uses, repeats itself a little more often than beam search.
LOOPING = 0.05
# A loop repeats up to eight words four times or more, in half of the translation or more.
LOOP_WORDS, LOOP_TIMES, LOOP_SHARE = 8, 4, 0.5

# The presets peak at 1 to 3.7 times the paper's rate for their width, and all of them learn.
RATE_LOW, RATE_HIGH = 0.25, 4.0

# The validation losses of a good run vary by a few hundredths.
RISE = 0.1
# Training losses vary more, especially with few updates per row.
DIVERGED = 0.5


@dataclass(frozen=True)
class LearningCurve:
    """The losses of a run per target token, oldest first, and what they are compared with.

    Attributes:
        losses: recent training losses.
        valid_losses: of all validations.
        initial_valid_loss: the validation loss at step 0, where training started from the weights
            of another run.
    """

    steps: int
    epochs: float
    frequency_loss: float
    losses: Sequence[float]
    valid_losses: Sequence[float]
    initial_valid_loss: float | None = None

    @property
    def valid_loss(self) -> float:
        """The loss of the newest validation."""
        return self.valid_losses[-1]


def findings(
    config: Config, curve: LearningCurve, src: Sequence[str], tgt: Sequence[str], hyp: Sequence[str]
) -> list[str]:
    """One sentence for each problem, with its figure and what to do about it.

    An unusual learning rate is not reported once the model has learned (`LEARNED`). It comes first,
    because it may be the cause of the others.

    Args:
        src, tgt, hyp: sources, references and translations of the newest validation.
    """
    has_learned = curve.valid_loss < min(LEARNED, LEARNED_SHARE * curve.frequency_loss)
    return [
        *([] if has_learned else _learning_rate(config, curve.steps)),
        *_loss(config, curve),
        *_copies(src, tgt, hyp),
        *_same_output(src, tgt, hyp),
        *_loops(config, tgt, hyp),
        *_overfitting(curve),
    ]


def rate_in_words(config: Config, *, is_fine_tuning: bool = False) -> str:
    """The highest learning rate of a run, its update, and its ratio to the paper's.

    Fine-tuning has no ratio, unless the schedule is the paper's.
    """
    settings = config.train
    step, rate, factor = _highest_rate(config, settings.last_step)
    text = f"peak {rate:.1e} at update {step:,}"
    times = f"{factor:.2g}"
    if times != "1" and not (is_fine_tuning and settings.schedule != "paper"):
        text += f", {times} times the paper's for d_model {config.model.d_model:,}"
    falls = settings.max_steps > settings.warmup_steps
    if settings.schedule in ("linear", "cosine") and falls:
        text += f"; {settings.schedule} to zero after update {settings.max_steps:,}"
    if settings.decay_steps:
        decay = min(settings.decay_steps, settings.max_steps)
        text += f"; linear decay to zero over the last {decay:,} updates"
    if settings.finish_steps:
        first = Schedule.from_config(config).finish_start
        text += f"; from update {first:,} to zero after {settings.last_step:,}"
    return text


def unusual_rate(config: Config) -> str | None:
    """The warning before training if the learning rate will be unusual, with what to do about it.

    It is unusual if it will be far above the paper's, or if training ends in the warm-up.
    """
    last, warmup = config.train.last_step, config.train.warmup_steps
    step, rate, factor = _highest_rate(config, last)
    if not _is_high(config, factor):
        if last >= warmup or config.train.finish_steps:
            return None
        return (
            f"training ends in the warm-up of the learning rate, after {last:,} of {warmup:,} "
            "updates; for more than a trial, raise train.max_steps or lower train.warmup_steps"
        )
    return (
        f"the learning rate will rise to {rate:.1e} at update {step:,}, {factor:.2g} times what "
        f"the paper's formula and warm-up give for d_model {config.model.d_model:,}; if the loss "
        f"does not fall, lower {setting_of_rate(config.train)} or raise train.warmup_steps"
    )


def frequency_loss(counts: Sequence[int] | npt.NDArray[Any]) -> float:
    """Natural-logarithm loss per token of guessing each subword by its frequency.

    Args:
        counts: (V,), how often each subword occurs in the training targets, including EOS.
    """
    occurring = np.asarray(counts, dtype=np.float64)
    occurring = occurring[occurring > 0]
    share = occurring / occurring.sum()
    return float(-(share * np.log(share)).sum())


def is_flat(scores: Sequence[float]) -> bool:
    """Whether the last five BLEU scores are less than half a point above the best before them.

    The BLEU of one checkpoint differs from its neighbours' by a few tenths of a point by chance, so
    a smaller gain is not evidence. A single bad validation changes nothing, and a run that has just
    started is never flat. A converged run is also flat; `findings` reports whether something is
    wrong.
    """
    return len(scores) > 5 and max(scores[-5:]) - max(scores[:-5]) < 0.5


def _loss(config: Config, curve: LearningCurve) -> Iterator[str]:
    """Nothing learned, or little more than how frequent subwords are; a rising training loss."""
    setting, guessed = setting_of_rate(config.train), curve.frequency_loss
    # Also if the loss is NaN.
    if not curve.valid_loss < GUESSING * guessed:
        loss, initial = f"is {curve.valid_loss:.2f}", curve.initial_valid_loss
        learned = "nothing has been learned yet"
        if curve.valid_loss < guessed:
            learned = "hardly more than that has been learned yet"
        change = "lower"
        if initial is not None and curve.valid_loss <= initial:
            if curve.valid_loss < initial:
                loss = f"fell from {initial:.2f} at step 0 to {curve.valid_loss:.2f}"
                learned = "little has been learned yet"
            if config.train.lora_rank:
                change = "raise"
        yield (
            f"The validation loss {loss} after {curve.steps:,} updates "
            f"({curve.epochs:.1f} epochs), and guessing by frequency would have {guessed:.2f}: "
            f"{learned}; train longer if the run has only begun, or else "
            f"{change} {setting} and check that source and target belong together line by line."
        )
    before, last = curve.losses[:-3], curve.losses[-3:]
    if before and min(last) > min(before) + DIVERGED:
        yield (
            f"The training loss rose from {min(before):.2f} to {min(last):.2f}: the updates are "
            f"too large; lower {setting} or raise train.warmup_steps, and begin again."
        )


def _copies(src: Sequence[str], tgt: Sequence[str], hyp: Sequence[str]) -> Iterator[str]:
    # Numbers and names are copied in a correct translation.
    words = [tuple(map(_words, lines)) for lines in zip(src, tgt, hyp, strict=True)]
    copied = [s == h for s, t, h in words if s and s != t]
    if _is_much(sum(copied), len(copied), COPIED):
        yield (
            f"{_percent(sum(copied), len(copied))} of the translations are their source "
            "unchanged: the training data may contain copies, or lines in the wrong "
            "language; remove pairs whose sides are equal and prepare the data again."
        )


def _same_output(src: Sequence[str], tgt: Sequence[str], hyp: Sequence[str]) -> Iterator[str]:
    # If a source occurs twice, the same translation twice is right.
    references = Counter(dict(zip(src, tgt, strict=True)).values())
    translations = dict(zip(src, hyp, strict=True)).values()
    outputs = Counter(hyp for hyp in translations if hyp.strip())
    if not outputs:
        return
    (text, count), (_, usual) = outputs.most_common(1)[0], references.most_common(1)[0]
    answered = outputs.total()
    if _is_much(count - usual, answered, SAME_OUTPUT):
        most = f'"{_cropped(text)}"'
        if count < answered:
            most = f"only {len(outputs):,} translations, {_percent(count, answered)} of them {most}"
        yield (
            f"{answered:,} different sources have {most}: the model ignores "
            "its source; check that source and target belong together line by line, then train "
            "longer, on more tokens per update."
        )


def _loops(config: Config, tgt: Sequence[str], hyp: Sequence[str]) -> Iterator[str]:
    words = [(_words(t), _words(h)) for t, h in zip(tgt, hyp, strict=True)]
    loops = sum(_has_loop(h) and not _has_loop(t) for t, h in words)
    if _is_much(loops, len(hyp), LOOPING):
        yield (
            f"{_percent(loops, len(hyp))} of the translations repeat the same few words again and "
            "again: the model is trained too little, or its learning rate is too high; train "
            f"longer, or lower {setting_of_rate(config.train)}."
        )


def _learning_rate(config: Config, steps: int) -> Iterator[str]:
    settings = config.train
    setting, warmup = setting_of_rate(settings), settings.warmup_steps
    _, rate, factor = _highest_rate(config, steps)
    reached = (
        f"The learning rate reached {rate:.1e}, {factor:.2g} times what the paper's formula and "
        f"warm-up give a width of {config.model.d_model:,}"
    )
    if rate == 0.0:
        yield f"The learning rate is 0, so the weights do not change: raise {setting}."
    elif _is_high(config, factor):
        yield f"{reached}: lower {setting} or raise train.warmup_steps."
    elif steps < warmup:
        cure = "wait for its end" if settings.last_step > warmup else "raise train.max_steps"
        share = _percent(rate, Schedule.from_config(config).peak)
        yield (
            f"The learning rate has reached {share} of its peak, after "
            f"{steps:,} of {warmup:,} updates of warm-up: {cure}, or lower train.warmup_steps."
        )
    # Fine-tuning, which has other schedules, needs low rates.
    elif settings.schedule == "paper" and factor < RATE_LOW:
        yield f"{reached}: raise {setting} or lower train.warmup_steps."


def _highest_rate(config: Config, steps: int) -> tuple[int, float, float]:
    """The update with the highest rate among the first, that rate, and its ratio to the paper's."""
    step, rate = Schedule.from_config(config).highest(steps)
    warmup = TrainConfig().warmup_steps
    return step, rate, rate / learning_rate(warmup, config.model.d_model, warmup)


def _is_high(config: Config, factor: float) -> bool:
    """Whether the highest rate is far above the paper's, for the same kind of training."""
    # Low-rank changes need a higher rate than all weights.
    return factor > RATE_HIGH and not config.train.lora_rank


def _overfitting(curve: LearningCurve) -> Iterator[str]:
    half = len(curve.losses) // 2
    best = min(curve.valid_losses[:-1], default=math.inf)
    falls = half and np.mean(curve.losses[half:]) < np.mean(curve.losses[:half])
    if falls and curve.valid_loss > best + RISE:
        yield (
            f"The validation loss rose from {best:.2f} to {curve.valid_loss:.2f} while the "
            f"training loss fell, in {curve.epochs:.1f} epochs: the model learns its training "
            "data by heart; add data or raise model.dropout, and translate with --checkpoint best."
        )


def _words(text: str) -> list[str]:
    """Words, or characters in scripts without spaces; in NFKC, as translations come."""
    text = unicodedata.normalize("NFKC", text)
    words = text.split()
    return list("".join(words)) if len(text) > 15 * len(words) else words


def _has_loop(words: list[str]) -> bool:
    """Whether repetitions of a few words are a large part of the text."""
    for period in range(1, min(LOOP_WORDS, len(words) // LOOP_TIMES) + 1):
        repeats = (a == b for a, b in zip(words, words[period:], strict=False))
        longest = max((len(list(run)) for equal, run in groupby(repeats) if equal), default=0)
        length = longest + period
        if length >= LOOP_TIMES * period and length >= LOOP_SHARE * len(words):
            return True
    return False


def _is_much(count: int, total: int, share: float) -> bool:
    return count >= FEW and count >= share * total


def _percent(count: float, total: float) -> str:
    share = 100 * count / total
    return f"{share:.0f} %" if share >= 10 else f"{share:.1f} %"


def _cropped(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:59] + "…"
