"""Samples beside a translation: how much they differ from it says how sure a model is."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import replace

from mtkit.translate.reading import Window
from mtkit.translate.requests import PendingWindow, Translation
from mtkit.translate.sentence_reader import SentenceReader
from mtkit.translate.translator import Translator


class _QuietReader(SentenceReader):
    def _truncate(self, ids: list[int], place: str) -> bool:
        """Cut ids without a warning: there was one when the line was translated."""
        is_longer = len(ids) > self._limit
        del ids[self._limit :]
        return is_longer


class Sampler(AbstractContextManager["Sampler"]):
    """Samples translations with the weights of a translator; without its glossary.

    Args:
        count: samples of each line.
        top_p, top_k: of the sampling.
    """

    def __init__(self, translator: Translator, *, count: int, top_p: float, top_k: int) -> None:
        changes = {"sample": True, "mbr_samples": 0, "temperature": 1.0, "seed": 1}
        changes |= {"top_p": top_p, "top_k": top_k}
        config = translator.config.model_copy(update=changes)
        self._count = count
        self._reader = _QuietReader(replace(translator.runs, config=config))
        self._backend = translator.decoder.with_config(config)

    def __exit__(self, *_: object) -> None:
        self._backend.close()

    def draw(self, lines: Sequence[str]) -> list[list[Translation]]:
        """The samples of each line. They depend on the text of its sentences alone.

        A line that is copied, such as a number, has one.
        """
        window = Window(1, list(lines))
        # All have one number, and so the same random numbers, wherever they are.
        read = [[replace(s, number=1) for s in line] for line in self._reader.read(window)]
        given = [sentence for line in read for sentence in line if sentence.ids]
        planned = PendingWindow(window, read, self._backend.plan(given, self._count))
        drawn: dict[int, list[Translation]] = {}
        with closing(self._backend.pipelined(iter([planned]))) as pipelined:
            for pending in pipelined:
                for batch in pending.batches:
                    drawn |= zip(map(id, batch.sentences), self._backend.finish(batch), strict=True)
        return [
            self._reader.join(s, [self._reader.results(x, drawn.get(id(x))) for x in s])
            for s in read
        ]
