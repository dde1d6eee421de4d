"""What a model is asked beside its translation: samples, and translations without a part."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack

from mtkit.check.checker import Checker, Covered, Decoded
from mtkit.check.model.coverage import Contrast
from mtkit.check.model.examples import Examples
from mtkit.check.rules import limits
from mtkit.check.rules.facts import missing_mark
from mtkit.check.rules.marks import Text
from mtkit.score import mutual_chrf
from mtkit.translate import ForcedDecoder, Sampler, Translation, Translator


class Prober(AbstractContextManager["Prober"]):
    """Asks a model about translations, for a checker of its run.

    Args:
        with_samples: whether samples are drawn, for a thorough check.
        of_own: whether the translations are those of the run itself. A model finds these probable
            whatever they lack, so it is not asked: of 1,000 captions it took back 16 of 18
            omissions that the lexicon found, nearly all of them right, and found no other.
    """

    def __init__(
        self, translator: Translator, checker: Checker, *, with_samples: bool, of_own: bool
    ) -> None:
        self._checker, self._stack = checker, ExitStack()
        self._sampler = self._forced = self._examples = None
        if with_samples:
            if checker.examples is not None:
                self._examples = Examples.load(checker.examples, checker.facts.tgt_lang)
            self._sampler = self._stack.enter_context(sampler_of(translator))
        # Both were fitted to a run, and an ensemble has no forecast.
        has_contrast = checker.coverage and checker.coverage.has_contrast and checker.forecast
        if has_contrast and not of_own:
            self._forced = self._stack.enter_context(ForcedDecoder(translator))

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def decoded(self, sources: Sequence[str], translations: Sequence[Translation]) -> list[Decoded]:
        """What a check uses of each translation; nothing depends on the others."""
        samples = self._sampler.draw(sources) if self._sampler else [()] * len(sources)
        covered = [
            self._checker.cover(source, translation.text)
            for source, translation in zip(sources, translations, strict=True)
        ]
        contrasts: list[Contrast | None] = [None] * len(sources)
        coverage = self._checker.coverage
        if self._forced is not None and coverage is not None:
            parts = [pair and coverage.shortened(src, tgt, pair) for src, tgt, pair in covered]
            near = [number for number, part in enumerate(parts) if part]
            asked = [(sources[i], translations[i].text, parts[i] or "") for i in near]
            known = [_without_eos(translations[i]) for i in near]
            for i, contrast in zip(near, contrasts_of(self._forced, asked, known), strict=True):
                contrasts[i] = contrast
        of_samples = [
            features_of_samples(translation.text, drawn, pair.src, self._examples)
            for translation, drawn, pair in zip(translations, samples, covered, strict=True)
        ]
        of_lines = zip(translations, of_samples, contrasts, covered, strict=True)
        return [decoded_of(*of_line) for of_line in of_lines]


def sampler_of(translator: Translator) -> Sampler:
    """What draws the samples of a thorough check."""
    return Sampler(
        translator, count=limits.SAMPLES, top_p=limits.SAMPLES_TOP_P, top_k=limits.SAMPLES_TOP_K
    )


def contrasts_of(
    forced: ForcedDecoder,
    near: Sequence[tuple[str, str, str]],
    known: Sequence[Sequence[float]] | None = None,
) -> list[Contrast | None]:
    """How probable translations are, and how much more without a part of their source.

    Contrastive conditioning (Vamvas and Sennrich 2022, https://aclanthology.org/2022.acl-short.53):
    without words that were translated, a translation is less probable. A mark at the end that only
    the source has is added to the translation: where a text is cut, it is not probable.

    Args:
        near: for each, its source, the translation, and the source without the part.
        known: for each, log-probabilities of its subwords, if there are as many.

    Returns:
        None for a translation without subwords.
    """
    if not near:
        return []
    sources, given, shorter = map(list, zip(*near, strict=True))
    texts = [text + missing_mark(source, text) for source, text in zip(sources, given, strict=True)]
    of_parts = forced.log_probs(shorter, texts)
    wholes = list(known or [()] * len(near))
    new = [
        i
        for i, (whole, part) in enumerate(zip(wholes, of_parts, strict=True))
        if len(whole) != len(part) or texts[i] != given[i]
    ]
    scored = forced.log_probs([sources[i] for i in new], [texts[i] for i in new]) if new else []
    for i, whole in zip(new, scored, strict=True):
        wholes[i] = whole
    return [
        _contrast(whole, part) if whole and part else None
        for whole, part in zip(wholes, of_parts, strict=True)
    ]


def _without_eos(translation: Translation) -> Sequence[float]:
    return translation.log_probs[: -1 if translation.finished else None]


def _contrast(whole: Sequence[float], part: Sequence[float]) -> Contrast:
    count, gain = len(whole), sum(part) - sum(whole)
    return Contrast(
        mean=sum(whole) / count,
        lowest=min(whole),
        last=whole[-1],
        gain=gain,
        mean_gain=gain / count,
        last_gain=part[-1] - whole[-1],
    )


def decoded_of(
    best: Translation,
    of_samples: Sequence[float] = (),
    contrast: Contrast | None = None,
    covered: Covered | None = None,
) -> Decoded:
    """What the checks use of a translation, and what else a model was asked of it."""
    of_search = best.log_probs, best.finished, best.truncated, best.missing
    return Decoded(*of_search, of_samples, contrast, covered)


def features_of_samples(
    translation: str, samples: Sequence[Translation], source: Text, examples: Examples | None
) -> list[float]:
    """The features of `OF_SAMPLES` and, with examples, `OF_EXAMPLES`; none without samples."""
    if not samples:
        return []
    log_probs = [value for sample in samples for value in sample.log_probs]
    first, *others = mutual_chrf([translation, *(sample.text for sample in samples)])
    return [
        first,
        sum(others) / len(others),
        sum(log_probs) / max(1, len(log_probs)),
        *([] if examples is None else [examples.likeness(source, translation)]),
    ]
