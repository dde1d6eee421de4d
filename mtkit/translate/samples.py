"""What a model is asked beside a translation: samples, and how probable given translations are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, Self

from mtkit.search_settings import stratified_uniforms
from mtkit.translate.reading import Window
from mtkit.translate.requests import PendingWindow, Sentence, Translation
from mtkit.translate.sentence_reader import SentenceReader
from mtkit.translate.translator import Translator


class _Search:
    """Another search with the weights of a translator; without its glossary."""

    def __init__(self, translator: Translator, changes: dict[str, Any]) -> None:
        config = translator.config.model_copy(update=changes)
        # There was a warning of a long line when it was translated.
        self._reader = SentenceReader(replace(translator.runs, config=config), warns=False)
        self._backend = translator.decoder.with_config(config)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._backend.close()

    def _results(
        self, window: Window, sentences: Iterable[Sentence], n_best: int
    ) -> dict[int, list[Translation]]:
        """The translations of each sentence that is not copied, by its `id`."""
        given = [sentence for sentence in sentences if sentence.ids]
        planned = PendingWindow(window, [], self._backend.plan(given, n_best))
        results: dict[int, list[Translation]] = {}
        with closing(self._backend.pipelined(iter([planned]))) as pipelined:
            for pending in pipelined:
                for batch in pending.batches:
                    finished = self._backend.finish(batch)
                    results |= zip(map(id, batch.sentences), finished, strict=True)
        return results


class Sampler(_Search):
    """Samples `count` translations of each line, with stratified random numbers."""

    def __init__(self, translator: Translator, *, count: int, top_p: float, top_k: int) -> None:
        changes = {"sample": True, "mbr_samples": 0, "temperature": 1.0, "seed": 1}
        super().__init__(translator, changes | {"top_p": top_p, "top_k": top_k})
        self._backend.uniforms = stratified_uniforms
        self._count = count

    def draw(self, lines: Sequence[str]) -> list[list[Translation]]:
        """The samples of each line, by its text alone; one that is copied has one."""
        window = Window(1, list(lines))
        # All have one number, and so the same random numbers, wherever they are.
        read = [[replace(s, number=1) for s in line] for line in self._reader.read(window)]
        drawn = self._results(window, (s for line in read for s in line), self._count)
        return [
            self._reader.join(s, [self._reader.results(x, drawn.get(id(x))) for x in s])
            for s in read
        ]


class ForcedDecoder(_Search):
    """Decodes given translations, each line as one sentence, by the engine of the translator."""

    def __init__(self, translator: Translator) -> None:
        # An output may have one token more than what it must begin with.
        changes = {"beam_size": 1, "sample": False, "mbr_samples": 0, "max_length": 1}
        changes |= {"split_sentences": False, "no_repeat_ngram": 0, "min_length": 0}
        super().__init__(translator, changes)

    def log_probs(
        self, sources: Sequence[str], translations: Sequence[str]
    ) -> list[Sequence[float]]:
        """The log-probabilities of the subwords of each translation, without EOS.

        None of a translation without subwords, or of a source that is blank.
        """
        window = Window(1, list(sources), list(translations))
        read = [sentence for line in self._reader.read(window) for sentence in line]
        results = self._results(window, read, 1)
        tag = len(self._reader.runs.tgt_prefix)
        return [
            results[id(s)][0].log_probs[tag : len(s.prefix)] if id(s) in results else ()
            for s in read
        ]
