"""Diagnoses a training that learns little, in plain sentences.

This module decides which facts are reported, from which value on, and what to do about each. Other
modules collect the facts and print the sentences. A run without problems gives no sentence.
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
# Its unusual settings are then not reported: they work for toy data.
LEARNED, LEARNED_SHARE = math.log(5.0), 0.5

# The loss of guessing by frequency is the entropy, and validation text differs a little from
# training text. A useful model is far below: `small` on Multi30k is at 0.7 after 300 updates.
GUESSING = 0.95
# If frequencies are unknown: a model that only knows which subwords are rare is well below ln V.
GUESSING_UNIFORMLY = 0.9

# In fewer sentences than this, a share is not reliable.
FEW = 5
# `small` on Multi30k copies none of 1,014 sentences, repeats itself in 7, and leaves none empty.
# Copied names and exclamations are right even if the reference has another spelling.
COPIED = 0.05
# Nearly a copy: most words are the source's, though few of the reference's are. In related
# languages the reference shares many words with the source, and so may the translation.
NEAR_COPY, RELATED = 0.8, 0.5
# Above this, the references are not translations, and the model is not the cause.
SAME_FILES = 0.9
# Even in subtitles, with many lines like "Yes.", few different sources have the same translation.
SAME_OUTPUT = 0.1
FEWER_OUTPUTS = 0.5
# Greedy search, which validation uses, repeats itself a little more often than beam search.
EMPTY = 0.02
LOOPING = 0.05
CUT = 0.05
CUT_SRC = 0.01
# A loop repeats up to eight words four times or more, in half of the translation or more.
LOOP_WORDS, LOOP_TIMES, LOOP_SHARE = 8, 4, 0.5
# Shared words with the own and another reference; fewer pairs than this have no reliable mean.
NO_BETTER, PAIRS = 1.1, 20

# The presets peak at 1 to 3.7 times the paper's rate for their width, and all of them learn.
RATE_LOW, RATE_HIGH = 0.25, 4.0
# The paper has 25,000. Multi30k still learns from 940; much below, the gradient is mostly noise.
FEW_TOKENS = 800
# A few per cent of BPE subwords occur only inside longer ones (Multi30k: 2.5 %); with more, the
# vocabulary is too large for the data.
UNSEEN = 0.2

# The validation losses of a good run vary by a few hundredths.
RISE = 0.1
# Training losses vary more, especially with few updates per row.
DIVERGED = 0.5


@dataclass(frozen=True)
class Validated:
    """The translations of a validation.

    Attributes:
        src, tgt, hyp: sources, references and translations, the same number of each.
        cut: for every translation, whether it reached the length limit unfinished.
        cut_src: number of sources that were cut to `decode.max_source_tokens`.
    """

    src: Sequence[str]
    tgt: Sequence[str]
    hyp: Sequence[str]
    cut: Sequence[bool]
    cut_src: int


@dataclass(frozen=True)
class Trained:
    """The state of a run.

    Attributes:
        steps: updates so far.
        mean_tokens_per_update: target tokens per update.
        epochs: how often the training data were seen.
        unseen_pieces: subwords of all vocabularies that never occur in the training data, without
            special and byte subwords.
        vocab_size: V of the target, with special and byte subwords.
        losses: recent training losses per target token, oldest first.
        valid_loss: the loss of the newest validation.
        earlier_valid_losses: the losses of the validations before, oldest first.
        frequency_loss: the loss of guessing by frequency, if known; see `frequency_loss`.
        src_vocab_size: the size of the source's own vocabulary; None if it is joint, or has its
            rows in the same matrix.
        initial_valid_loss: the validation loss at step 0 of the weights of another run, where
            training started from those.
    """

    steps: int
    mean_tokens_per_update: float
    epochs: float
    unseen_pieces: int
    vocab_size: int
    losses: Sequence[float]
    valid_loss: float
    earlier_valid_losses: Sequence[float] = ()
    frequency_loss: float | None = None
    src_vocab_size: int | None = None
    initial_valid_loss: float | None = None


def findings(config: Config, trained: Trained, validated: Validated) -> list[str]:
    """One sentence for each problem, with its figure and what to do about it.

    Unusual settings are not reported once the model has learned (`LEARNED`).

    Args:
        config: of the run.
        trained: the state of the run.
        validated: the translations of its newest validation.

    Returns:
        Sentences with their full stop; none if all is well. Unusual settings come first, because
        they may be the cause of the others.
    """
    guessed = trained.frequency_loss or math.log(trained.vocab_size)
    has_learned = trained.valid_loss < min(LEARNED, LEARNED_SHARE * guessed)
    return [
        *([] if has_learned else _settings(config, trained)),
        *_loss(config, trained),
        *_translations(config, validated),
        *_overfitting(trained),
    ]


def rate_in_words(config: Config, *, is_fine_tuning: bool = False) -> str:
    """The highest learning rate of a run, its update, and its ratio to the paper's.

    Args:
        config: of the run.
        is_fine_tuning: whether it starts from the weights of another run. The ratio is left out
            then, unless the schedule is the paper's.
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
        text += f"; from update {settings.finish_after + 1:,} to zero after {settings.last_step:,}"
    return text


def unusual_rate(config: Config) -> str | None:
    """The warning before training if the learning rate will be unusual, with what to do about it.

    It is unusual if it will be far above the paper's, or if training ends in the warm-up.
    """
    last, warmup = config.train.last_step, config.train.warmup_steps
    step, rate, factor = _highest_rate(config, last)
    if not _is_high(config, factor):
        if last >= warmup:
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


def is_flat(scores: Sequence[float], *, window: int = 5, least_gain: float = 0.5) -> bool:
    """Whether the last validations brought no real gain over the best score before them.

    Flat means that the best of the last `window` scores is less than `least_gain` above the best
    of all others. The BLEU of one checkpoint differs from its neighbours' by a few tenths of a
    point by chance, so a smaller gain is not evidence. A single bad validation changes nothing,
    and a run that has just started (no score before the window) is never flat. A converged run is
    also flat; `findings` reports whether something is wrong.

    Args:
        scores: BLEU of all validations, oldest first.
        window: the number of last validations.
        least_gain: in points.
    """
    if len(scores) <= window:
        return False
    return max(scores[-window:]) - max(scores[:-window]) < least_gain


def _loss(config: Config, trained: Trained) -> Iterator[str]:
    """Nothing learned, or little more than how frequent subwords are; a rising training loss."""
    setting = setting_of_rate(config.train)
    if trained.frequency_loss is not None:
        guess, limit = "guessing by frequency", GUESSING * trained.frequency_loss
        guessed = trained.frequency_loss
    else:
        guessed = math.log(trained.vocab_size)
        guess, limit = "guessing blindly", GUESSING_UNIFORMLY * guessed
    # Also if the loss is NaN.
    if not trained.valid_loss < limit:
        loss, initial = f"is {trained.valid_loss:.2f}", trained.initial_valid_loss
        learned = "nothing has been learned yet"
        if trained.valid_loss < guessed:
            learned = "hardly more than that has been learned yet"
        change = "lower"
        if initial is not None and trained.valid_loss <= initial:
            if trained.valid_loss < initial:
                loss = f"fell from {initial:.2f} at step 0 to {trained.valid_loss:.2f}"
                learned = "little has been learned yet"
            if config.train.lora_rank:
                change = "raise"
        yield (
            f"The validation loss {loss} after {trained.steps:,} updates "
            f"({trained.epochs:.1f} epochs), and {guess} would have {guessed:.2f}: "
            f"{learned}; train longer if the run has only begun, or else "
            f"{change} {setting} and check that source and target belong together line by line."
        )
    before, last = trained.losses[:-3], trained.losses[-3:]
    if before and min(last) > min(before) + DIVERGED:
        yield (
            f"The training loss rose from {min(before):.2f} to {min(last):.2f}: the updates are "
            f"too large; lower {setting} or raise train.warmup_steps, and begin again."
        )


def _translations(config: Config, validated: Validated) -> list[str]:
    src = [_words(text) for text in validated.src]
    tgt = [_words(text) for text in validated.tgt]
    hyp = [_words(text) for text in validated.hyp]
    found = [
        *_copies(src, tgt, hyp),
        *_same_output(validated),
        *_empty(config, src, tgt, hyp, validated.cut),
        *_unending(config, validated.cut, tgt, hyp),
    ]
    # This comes last, because any of the above would explain it.
    if not found:
        found += _unrelated(tgt, hyp)
    if validated.cut_src and validated.cut_src >= CUT_SRC * len(src):
        found.append(
            f"{_percent(validated.cut_src, len(src))} of the validation sources were cut, because "
            f"they are longer than {config.decode.max_source_tokens:,} subwords, and score as if "
            "translated in part; put one sentence on a line, or raise decode.max_source_tokens."
        )
    return found


def _copies(src: list[list[str]], tgt: list[list[str]], hyp: list[list[str]]) -> Iterator[str]:
    # Numbers and names are copied in a correct translation.
    same = sum(s == t for s, t in zip(src, tgt, strict=True))
    if _much(same, len(src), SAME_FILES):
        yield (
            f"{_percent(same, len(src))} of the references are their source unchanged: source and "
            "target files may be the same language; prepare the data again from the right files."
        )
    pairs = [(s, t, h) for s, t, h in zip(src, tgt, hyp, strict=True) if s and s != t]
    exact = sum(s == h for s, _, h in pairs)
    near = sum(
        s != h and len(h) >= 4 and _overlap(h, s) >= NEAR_COPY and _overlap(t, s) < RELATED
        for s, t, h in pairs
    )
    if _much(exact + near, len(pairs), COPIED):
        and_near = f", or nearly so ({_percent(near, len(pairs))})" if near else ""
        yield (
            f"{_percent(exact + near, len(pairs))} of the translations are their source "
            f"unchanged{and_near}: the training data may contain copies, or lines in the wrong "
            "language; remove pairs whose sides are equal and prepare the data again."
        )


def _same_output(validated: Validated) -> Iterator[str]:
    # If a source occurs twice, the same translation twice is right.
    references = Counter(dict(zip(validated.src, validated.tgt, strict=True)).values())
    translations = dict(zip(validated.src, validated.hyp, strict=True)).values()
    outputs = Counter(hyp for hyp in translations if hyp.strip())
    if not outputs:
        return
    (text, count), (_, usual) = outputs.most_common(1)[0], references.most_common(1)[0]
    answered = outputs.total()
    fewer = len(outputs) <= FEWER_OUTPUTS * min(len(references), answered)
    if _much(count - usual, answered, SAME_OUTPUT) or (fewer and answered >= PAIRS):
        most = f'"{_cropped(text)}"'
        if count < answered:
            most = f"only {len(outputs):,} translations, {_percent(count, answered)} of them {most}"
        yield (
            f"{answered:,} different sources have {most}: the model ignores "
            "its source; check that source and target belong together line by line, then train "
            "longer, on more tokens per update."
        )


def _empty(
    config: Config,
    src: list[list[str]],
    tgt: list[list[str]],
    hyp: list[list[str]],
    cut: Sequence[bool],
) -> Iterator[str]:
    expected = [(h, c) for s, t, h, c in zip(src, tgt, hyp, cut, strict=True) if s and t]
    unfinished = [c for h, c in expected if not h]
    if _much(len(unfinished), len(expected), EMPTY):
        share = _percent(len(unfinished), len(expected))
        if 2 * sum(unfinished) > len(unfinished):
            yield (
                f"{share} of the translations are empty, though most of them reached the length "
                "limit, with subwords that are not text: the model is trained too little, or its "
                "learning rate is too high; train longer, or lower "
                f"{setting_of_rate(config.train)}."
            )
        else:
            yield (
                f"{share} of the translations are empty: the model has learned too little, or the "
                "training data have targets that are far too short; drop those, or train longer."
            )


def _unending(
    config: Config, cut: Sequence[bool], tgt: list[list[str]], hyp: list[list[str]]
) -> Iterator[str]:
    loops = sum(_loops(h) and not _loops(t) for t, h in zip(tgt, hyp, strict=True))
    looping = _much(loops, len(hyp), LOOPING)
    if looping:
        yield (
            f"{_percent(loops, len(hyp))} of the translations repeat the same few words again and "
            "again: the model is trained too little, or its learning rate is too high; train "
            f"longer, or lower {setting_of_rate(config.train)}."
        )
    # Those without words are reported as empty.
    endless = sum(c and bool(h) for h, c in zip(hyp, cut, strict=True))
    if _much(endless, len(hyp), CUT):
        cure = (
            "it has the same cause as the repeats"
            if looping
            else "train longer, or raise decode.max_extra_length if targets are that long"
        )
        yield (
            f"{_percent(endless, len(hyp))} of the translations reached the length limit, "
            f"{config.decode.max_extra_length} subwords beyond their source, without an end: "
            f"{cure}."
        )


def _unrelated(tgt: list[list[str]], hyp: list[list[str]]) -> Iterator[str]:
    half = len(tgt) // 2
    # Compare each reference with a distant one, because neighbours may have the same topic.
    pairs = [
        (_overlap(h, own), _overlap(h, other))
        for h, own, other in zip(hyp, tgt, tgt[half:] + tgt[:half], strict=True)
        if h and own != other
    ]
    if len(pairs) < PAIRS:
        return
    own, other = np.mean(pairs, axis=0)
    # Above a half, the translations are good, and the references similar.
    if own <= NO_BETTER * other and own < 0.5:
        yield (
            f"The translations share {100 * own:.0f} % of their words with their own reference "
            f"and {100 * other:.0f} % with another sentence's: they are not related to "
            "their sources; check that source and target belong together line by line, then "
            "train longer."
        )


def _settings(config: Config, trained: Trained) -> Iterator[str]:
    yield from _learning_rate(config, trained.steps)
    if trained.mean_tokens_per_update < FEW_TOKENS:
        yield (
            f"An update sees {trained.mean_tokens_per_update:,.0f} target tokens, where the paper "
            f"has {TrainConfig().batch_tokens:,}: too few for a stable gradient; raise "
            "train.batch_tokens."
        )
    pieces = trained.vocab_size + (trained.src_vocab_size or 0)
    # In fine-tuning, their rows have the values of the earlier run.
    is_new = trained.initial_valid_loss is None
    if is_new and trained.unseen_pieces >= UNSEEN * pieces:
        yield (
            f"{trained.unseen_pieces:,} of the {pieces:,} subwords "
            f"({_percent(trained.unseen_pieces, pieces)}) never occur in the training "
            "data, and their rows of the embedding stay untrained; prepare the data with a smaller "
            "--vocab-size."
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
        share = _percent(rate, Schedule.of(config).peak)
        yield (
            f"The learning rate has reached {share} of its peak, after "
            f"{steps:,} of {warmup:,} updates of warm-up: {cure}, or lower train.warmup_steps."
        )
    elif settings.schedule != "paper":
        # Fine-tuning needs low rates.
        return
    elif factor < RATE_LOW:
        yield f"{reached}: raise {setting} or lower train.warmup_steps."
    elif not RATE_LOW <= (scale := settings.learning_rate_scale) <= RATE_HIGH:
        yield (
            f"The learning rate is {scale:g} times the paper's formula: "
            "set train.learning_rate_scale nearer to 1."
        )


def _highest_rate(config: Config, steps: int) -> tuple[int, float, float]:
    """The update with the highest rate among the first, that rate, and its ratio to the paper's."""
    step, rate = Schedule.of(config).highest(steps)
    warmup = TrainConfig().warmup_steps
    return step, rate, rate / learning_rate(warmup, config.model.d_model, warmup)


def _is_high(config: Config, factor: float) -> bool:
    """Whether the highest rate is far above the paper's, for the same kind of training."""
    # Low-rank changes need a higher rate than all weights.
    return factor > RATE_HIGH and not config.train.lora_rank


def _overfitting(trained: Trained) -> Iterator[str]:
    half = len(trained.losses) // 2
    if not half or not trained.earlier_valid_losses:
        return
    best = min(trained.earlier_valid_losses)
    falls = np.mean(trained.losses[half:]) < np.mean(trained.losses[:half])
    if falls and trained.valid_loss > best + RISE:
        yield (
            f"The validation loss rose from {best:.2f} to {trained.valid_loss:.2f} while the "
            f"training loss fell, in {trained.epochs:.1f} epochs: the model learns its training "
            "data by heart; add data or raise model.dropout, and translate with --checkpoint best."
        )


def _words(text: str) -> list[str]:
    """Words, or characters in scripts without spaces; in NFKC, as translations come."""
    text = unicodedata.normalize("NFKC", text)
    words = text.split()
    return list("".join(words)) if len(text) > 15 * len(words) else words


def _overlap(left: list[str], right: list[str]) -> float:
    """Share of common words, in any order, of the longer side."""
    shared = (Counter(left) & Counter(right)).total()
    return shared / max(len(left), len(right), 1)


def _loops(words: list[str]) -> bool:
    """Whether repetitions of a few words are a large part of the text."""
    for period in range(1, min(LOOP_WORDS, len(words) // LOOP_TIMES) + 1):
        repeats = (a == b for a, b in zip(words, words[period:], strict=False))
        longest = max((len(list(run)) for equal, run in groupby(repeats) if equal), default=0)
        said = longest + period
        if said >= LOOP_TIMES * period and said >= LOOP_SHARE * len(words):
            return True
    return False


def _much(count: int, total: int, share: float) -> bool:
    return count >= FEW and count >= share * total


def _percent(count: float, total: float) -> str:
    share = 100 * count / total
    return f"{share:.0f} %" if share >= 10 else f"{share:.1f} %"


def _cropped(text: str, width: int = 60) -> str:
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 1] + "…"
