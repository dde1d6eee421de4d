"""What a model is asked beside its translation: samples, and translations without a part."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack

from mtkit.check.checker import Checker, Decoded
from mtkit.check.rules import limits
from mtkit.score import mutual_chrf
from mtkit.translate import ForcedDecoder, Sampler, Translation, Translator


class Prober(AbstractContextManager["Prober"]):
    """Asks a model about translations, for a checker of its run.

    Args:
        with_samples: whether samples are drawn, for a thorough check.
    """

    def __init__(self, translator: Translator, checker: Checker, *, with_samples: bool) -> None:
        self._checker, self._stack = checker, ExitStack()
        self._sampler = self._forced = None
        if with_samples:
            self._sampler = self._stack.enter_context(sampler_of(translator))
        # Both were fitted to a run, and an ensemble has no forecast.
        if checker.coverage and checker.coverage.has_contrast and checker.forecast:
            self._forced = self._stack.enter_context(ForcedDecoder(translator))

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def decoded(self, sources: Sequence[str], translations: Sequence[Translation]) -> list[Decoded]:
        """What a check uses of each translation; nothing depends on the others."""
        samples = self._sampler.draw(sources) if self._sampler else [()] * len(sources)
        contrasts = self._contrasts(sources, [translation.text for translation in translations])
        of_lines = zip(translations, samples, contrasts, strict=True)
        return [decoded_of(*of_line) for of_line in of_lines]

    def _contrasts(self, sources: Sequence[str], texts: Sequence[str]) -> list[list[float]]:
        results: list[list[float]] = [[] for _ in sources]
        if self._forced is not None:
            pairs = enumerate(zip(sources, texts, strict=True))
            parts = ((number, self._checker.shortened(*pair)) for number, pair in pairs)
            near = {number: shorter for number, shorter in parts if shorter}
            asked = [(sources[number], texts[number], shorter) for number, shorter in near.items()]
            for number, contrast in zip(near, contrasts_of(self._forced, asked), strict=True):
                results[number] = contrast
        return results


def sampler_of(translator: Translator) -> Sampler:
    """What draws the samples of a thorough check."""
    return Sampler(
        translator,
        count=limits.SAMPLES,
        top_p=limits.SAMPLES_TOP_P,
        top_k=limits.SAMPLES_TOP_K,
    )


def contrasts_of(forced: ForcedDecoder, near: Sequence[tuple[str, str, str]]) -> list[list[float]]:
    """How probable translations are, and how much more without a part of their source.

    Contrastive conditioning (Vamvas and Sennrich 2022, https://aclanthology.org/2022.acl-short.53):
    without words that were translated, a translation is less probable.

    Args:
        near: for each, its source, the translation, and the source without the part.

    Returns:
        For each, the features of `Coverage.findings`; none if it has no subwords.
    """
    if not near:
        return []
    sources, texts, shorter = map(list, zip(*near, strict=True))
    scored = forced.log_probs([*sources, *shorter], [*texts, *texts])
    return [
        _contrast(whole, part) if whole and part else []
        for whole, part in zip(scored[: len(near)], scored[len(near) :], strict=True)
    ]


def _contrast(whole: Sequence[float], part: Sequence[float]) -> list[float]:
    count, gain = len(whole), sum(part) - sum(whole)
    return [
        sum(whole) / count,
        min(whole),
        whole[-1],
        gain,
        gain / count,
        part[-1] - whole[-1],
    ]


def decoded_of(
    best: Translation, samples: Sequence[Translation] = (), contrast: Sequence[float] = ()
) -> Decoded:
    """What the checks use of a translation, of samples beside it, and of `contrasts_of`."""
    of_samples = features_of_samples(best.text, samples)
    return Decoded(
        best.log_probs, best.finished, best.truncated, best.missing, of_samples, contrast
    )


def features_of_samples(translation: str, samples: Sequence[Translation]) -> list[float]:
    """The features of `OF_SAMPLES`, of a translation and its samples; none without samples."""
    if not samples:
        return []
    log_probs = [value for sample in samples for value in sample.log_probs]
    first, *others = mutual_chrf([translation, *(sample.text for sample in samples)])
    return [
        first,
        sum(others) / len(others),
        sum(log_probs) / max(1, len(log_probs)),
    ]
