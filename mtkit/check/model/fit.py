"""Fits the checks of a run: the lexicon, what is usual, and the forecast of the chrF."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from mtkit.base.errors import MtkitError
from mtkit.base.files import NewerFormatError
from mtkit.base.invisible import visible
from mtkit.check.model.alignment_heads import tune_to_lexicon
from mtkit.check.model.confidence import FEATURES, OF_SAMPLES, Forecast, features_of
from mtkit.check.model.coverage import Coverage, CoverageSettings, delete_end, delete_part
from mtkit.check.model.examples import Examples
from mtkit.check.model.lexicon import Lexicon
from mtkit.check.model.linear import Regression
from mtkit.check.model.prober import contrasts_of, features_of_samples, sampler_of
from mtkit.check.model.run_quality import DirectionChecks, RunChecks, save_checks
from mtkit.check.rules import limits
from mtkit.check.rules.facts import PairFacts
from mtkit.check.rules.marks import Text
from mtkit.data import PreparedData
from mtkit.run_folder import Run
from mtkit.score import sentence_chrf
from mtkit.tokenizer import Tokenizer
from mtkit.translate import ForcedDecoder, Translation, Translator, Window, windows

log = logging.getLogger(__name__)


Pair = tuple[str, str]


class _Direction(NamedTuple):
    """A direction: its languages, pairs that the facts are learned from, and validation pairs."""

    src_lang: str
    tgt_lang: str
    usual: Sequence[Pair]
    valid: Sequence[Pair]


class _Forecasts(NamedTuple):
    """The forecasts of a direction; None if it has too few pairs."""

    forecast: Forecast | None = None
    thorough: Forecast | None = None
    with_examples: Forecast | None = None


def fit_run(run: Run, data: PreparedData, *, device: str = "auto") -> RunChecks | None:
    """Fit the checks of a trained run to its data; None if the validation set is too small.

    Raises:
        MtkitError: if the run cannot translate.
    """
    texts = data.texts("valid")
    if max(len(text.src) for text in texts) < limits.MIN_FITTED:
        log.info(
            "confidence: not fitted, because the validation set has under %d pairs",
            limits.MIN_FITTED,
        )
        return None
    by_text = [_evenly(list(zip(t.src, t.tgt, strict=True)), limits.MAX_VALID_PAIRS) for t in texts]
    with _reported(by_text):
        train = _training_pairs(data)
        directions = []
        for text, valid in zip(texts, by_text, strict=True):
            # The training pairs of several source languages are together.
            usual = valid if len(texts) > 1 else _evenly(train[text.tgt_lang], limits.MAX_SAMPLED)
            directions.append(_Direction(text.src_lang, text.tgt_lang, usual, valid))
        return _fit(run, train, directions, device=device)


def fit_pairs(
    run: Run,
    pairs: Sequence[Pair],
    *,
    src_lang: str | None = None,
    tgt_lang: str | None = None,
    device: str = "auto",
) -> RunChecks:
    """Fit the checks of a run to given pairs, such as those of an imported run.

    Raises:
        MtkitError: if there are too few pairs, if the run cannot translate, or if it has checks of
            other directions or of a newer version.
    """
    pairs = _evenly(pairs, limits.MAX_TRAIN_PAIRS)
    valid = pairs[:: limits.HELD_OUT]
    if len(valid) < limits.MIN_FITTED:
        needed = limits.MIN_FITTED * limits.HELD_OUT
        raise MtkitError(f"--fit needs at least {needed:,} pairs; found {len(pairs):,}")
    with Translator.load(run, device=device, src_lang=src_lang, tgt_lang=tgt_lang) as translator:
        languages = translator.src_lang, translator.tgt_lang
    try:
        old = RunChecks.load(run.path)
    except NewerFormatError:
        raise
    except MtkitError as error:
        log.warning("%s; it is replaced", error)
        old = None
    if old is not None and any(direction.languages != languages for direction in old.directions):
        raise MtkitError(
            f"{run.path}: has checks of other directions, which would be lost; "
            f"mtkit check --fit --run {run.in_command} fits all to its data"
        )
    train = [pair for number, pair in enumerate(pairs) if number % limits.HELD_OUT]
    direction = _Direction(
        *languages, _evenly(pairs, limits.MAX_SAMPLED), _evenly(valid, limits.MAX_VALID_PAIRS)
    )
    with _reported([direction.valid]):
        return _fit(run, {direction.tgt_lang: train}, [direction], device=device)


@contextmanager
def _reported(by_direction: Iterable[Sequence[Pair]]) -> Iterator[None]:
    """Say when the checks are being fitted, and how long it took."""
    lines = sum(len(valid) for valid in by_direction if len(valid) >= limits.MIN_FITTED)
    log.info("fitting the checks to the translations of %s lines", f"{lines:,}")
    began = time.monotonic()
    yield
    log.info("fitted the checks in %.0f s", time.monotonic() - began)


def _fit(
    run: Run, train: Mapping[str, Sequence[Pair]], directions: Sequence[_Direction], *, device: str
) -> RunChecks:
    """Fit all directions; `train` has the training pairs of each target language."""
    lexicons = {language: Lexicon.learn(pairs) for language, pairs in train.items()}
    examples = {
        language: Examples(_evenly(pairs, limits.MAX_EXAMPLES // len(train)))
        for language, pairs in train.items()
    }
    fitted = []
    has_tags = bool(run.tokenizers().src.language_tags)
    checkpoint = ""
    for d in directions:
        facts = PairFacts.learn(d.usual, src_lang=d.src_lang, tgt_lang=d.tgt_lang)
        coverage, forecasts = None, _Forecasts()
        lexicon = lexicons[d.tgt_lang]
        if len(d.valid) >= limits.MIN_FITTED:
            src_lang, tgt_lang = (d.src_lang, d.tgt_lang) if has_tags else (None, None)
            coverage = Coverage.fit(lexicon, d.valid)
            with Translator.load(
                run, device=device, src_lang=src_lang, tgt_lang=tgt_lang
            ) as translator:
                checkpoint = translator.checkpoint
                sources = [src for src, _ in d.valid]
                coverage = _fit_contrast(translator, lexicon, coverage, d.valid)
                translations = _translated(translator, sources)
                with sampler_of(translator) as sampler:
                    samples = sampler.draw(sources)
                tune_to_lexicon(run, translator, lexicon, d.valid)
                forecasts = _fit_forecasts(
                    translations,
                    samples,
                    Coverage(lexicon, coverage),
                    examples[d.tgt_lang],
                    d.valid,
                )
        fitted.append(DirectionChecks(facts=facts, coverage=coverage, **forecasts._asdict()))
        if forecasts.forecast is not None:
            _report(d, forecasts.forecast, several=len(directions) > 1)
    return save_checks(run.path, lexicons, examples, checkpoint=checkpoint, directions=fitted)


def _fit_contrast(
    translator: Translator, lexicon: Lexicon, settings: CoverageSettings, valid: Sequence[Pair]
) -> CoverageSettings:
    """The settings with the regression of what the model says of omissions near the limit."""
    coverage = Coverage(lexicon, settings)
    near = [
        (src, tgt, shorter, is_faulty)
        for src, tgt, is_faulty in _shortened_pairs(valid)
        if (shorter := coverage.shortened(src, tgt, coverage.of(src, tgt)))
    ]
    with ForcedDecoder(translator) as forced:
        contrasts = contrasts_of(forced, [(s.raw, t.raw, shorter) for s, t, shorter, _ in near])
    rows = [
        (coverage.contrast_features(coverage.of(src, tgt), contrast), is_faulty)
        for (src, tgt, _, is_faulty), contrast in zip(near, contrasts, strict=True)
        if contrast
    ]
    right = sum(not is_faulty for _, is_faulty in rows)
    if min(right, len(rows) - right) < limits.MIN_CONTRASTED:
        return settings
    share = limits.MAX_CONTRAST_SHARE * len(valid) / right
    contrast = Regression.fit(
        *zip(*rows, strict=True), share=min(1.0, share), lowest=limits.MIN_CONTRAST_LOG_ODDS
    )
    return settings.model_copy(update={"contrast": contrast})


def _shortened_pairs(pairs: Sequence[Pair]) -> Iterator[tuple[Text, Text, bool]]:
    """Pairs, and whether a part of the translation was deleted, or its end before the last mark."""
    pick = random.Random(1)
    for source, translation in pairs:
        yield Text(source), Text(translation), False
        for shorter in (delete_part(translation, pick), delete_end(translation)):
            if shorter is not None:
                yield Text(source), Text(shorter), True


def _fit_forecasts(
    results: Sequence[Translation],
    samples: Sequence[Sequence[Translation]],
    coverage: Coverage,
    examples: Examples,
    valid: Sequence[Pair],
) -> _Forecasts:
    """The forecasts; none if all translations are equally bad."""
    sources, references = map(list, zip(*valid, strict=True))
    # A blank line has no log-probabilities.
    used = [i for i, result in enumerate(results) if result.log_probs]
    features = [
        features_of(results[i].log_probs, coverage.of(Text(sources[i]), Text(results[i].text)))
        for i in used
    ]
    chrf = sentence_chrf([results[i].text for i in used], [references[i] for i in used])
    if len(used) < limits.MIN_FITTED or max(chrf) - min(chrf) < limits.MIN_CHRF_DIFFERENCE:
        log.info("confidence: not fitted, because all translations have nearly the same chrF")
        return _Forecasts()
    all_features = [
        [*own, *features_of_samples(results[i].text, samples[i], Text(sources[i]), examples)]
        for i, own in zip(used, features, strict=True)
    ]
    counts = len(FEATURES), len(FEATURES + OF_SAMPLES), None
    return _Forecasts(*(Forecast.fit([row[:n] for row in all_features], chrf) for n in counts))


def _translated(translator: Translator, sources: list[str]) -> list[Translation]:
    """The best translation of each line, with a progress bar on a terminal."""
    results: list[Translation] = []
    given = (Window(first, window) for first, window in windows(sources, size=len))
    with tqdm(
        total=len(sources),
        leave=False,
        dynamic_ncols=True,
        # None: off where standard error is not a terminal.
        disable=None if log.isEnabledFor(logging.INFO) else True,
        # With split sentences, a part of a line counts as a fraction.
        bar_format="fitting checks {n:.0f}/{total_fmt} {bar} {remaining} left",
    ) as bar:
        for _, translations in translator.translate_windows(given, progress=bar.update):
            results += [best for best, *_ in translations]
    return results


def _report(direction: _Direction, forecast: Forecast, *, several: bool) -> None:
    of = f" {direction.src_lang}-{direction.tgt_lang}" if several else ""
    quality = forecast.quality
    log.info(
        "confidence%s: forecasts of chrF are off by %.1f points on average; rank correlation with "
        "chrF %.2f (1 is perfect, 0 is chance); the log-probability alone has %.2f",
        of,
        quality.error,
        quality.correlation,
        quality.baseline,
    )


def _training_pairs(data: PreparedData) -> dict[str, list[Pair]]:
    """Training pairs of each target language from all parts of the corpus, as text."""
    pairs, vocabularies = data.pairs("train"), data.tokenizers()
    by_language: dict[str, list[Pair]] = {tgt_lang: [] for _, tgt_lang in data.language_pairs}
    # The tag of the target language is the first token of this side.
    side = int(vocabularies.has_tags_on_both_sides)
    languages = {tag: code for code, tag in vocabularies[side].language_tags.items()}
    only = next(iter(by_language))
    count = min(len(pairs), limits.MAX_TRAIN_PAIRS * len(by_language), limits.MAX_ALL_TRAIN_PAIRS)
    # In no order, because a lexicon is learned from the first ones.
    rows = np.random.default_rng(1).permutation(len(pairs))[:count]
    for start in range(0, count, 4096):
        some = rows[start : start + 4096]
        encoded = [pairs.src.select(some), pairs.tgt.select(some)]
        ids, lengths = encoded[side]
        first = ids[np.cumsum(lengths) - lengths].tolist()
        sources, targets = (_decoded(t, *of) for t, of in zip(vocabularies, encoded, strict=True))
        for tag, *pair in zip(first, sources, targets, strict=True):
            by_language[languages.get(tag, only)].append((pair[0], pair[1]))
    return by_language


def _decoded(tokenizer: Tokenizer, ids: np.ndarray, lengths: np.ndarray) -> list[str]:
    """The text of sentences whose ids are one after another."""
    ends = np.cumsum(lengths)
    flat = ids.tolist()
    return [
        tokenizer.decode(flat[end - size : end - 1])
        for end, size in zip(ends.tolist(), lengths.tolist(), strict=True)
    ]


def _evenly(pairs: Sequence[Pair], most: int) -> Sequence[Pair]:
    """At most `most` of the pairs, from all parts, without invisible characters."""
    if len(pairs) > most:
        pairs = [pairs[i] for i in np.linspace(0, len(pairs) - 1, most).astype(int).tolist()]
    return [(visible(src), visible(tgt)) for src, tgt in pairs]
