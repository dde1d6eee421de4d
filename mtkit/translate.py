"""Lines of text in, lines of text out, in order, in bounded memory.

One line in is one line out, whatever is in it, and a translation does not depend on the lines
around it.
"""

from __future__ import annotations

import itertools
import logging
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from mtkit.checkpoint import Run
from mtkit.config import DecodeConfig
from mtkit.data import plan_batches
from mtkit.devices import choose_device, choose_matrix_route, keep_freed_memory
from mtkit.inference import Engine, choose_precision, prepare
from mtkit.model import Transformer
from mtkit.search import Constraints, beam_search, length_penalty
from mtkit.tokenizer import BOS_ID, EOS_ID, PAD_ID, Tokenizer

log = logging.getLogger(__name__)

# Lines that are sorted by length together, and the characters at which a window is full anyway.
WINDOW_LINES = 2048
WINDOW_CHARACTERS = 1_000_000

T = TypeVar("T")


@dataclass(frozen=True)
class Translation:
    """One hypothesis for one line.

    Attributes:
        text: detokenised, on one line.
        score: log-probability over the length penalty; 0 for a blank line.
        log_prob: sum of the natural log-probabilities of its tokens.
        finished: False if it was cut off at the longest output allowed.
    """

    text: str
    score: float
    log_prob: float
    finished: bool = True


@dataclass(frozen=True)
class Scored:
    """What the model thinks of a given translation.

    Attributes:
        pieces: subwords of the translation, with EOS at the end; none if both lines are blank.
        log_probs: natural log-probability of each.
        log_prob: their sum.
        score: `log_prob` over the length penalty, as `Translation.score`.
    """

    pieces: tuple[str, ...]
    log_probs: tuple[float, ...]
    log_prob: float
    score: float


class Translator:
    """Translates lines of text with a trained model.

    Args:
        model: on its device, in evaluation mode; its weights are used where they are.
        tokenizer: of the model.
        config: beam size, length penalty and limits.
        device: where the model is.
    """

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        config: DecodeConfig,
        *,
        device: torch.device,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.config = config
        self.device = device
        self.engine = Engine(model)
        # Which weights of the run these are, in words; `load` knows.
        self.checkpoint = ""

    @classmethod
    def load(
        cls,
        run: Run | Path | str,
        *,
        checkpoint: str | None = None,
        config: DecodeConfig | None = None,
        device: str = "auto",
        prepared: bool = True,
    ) -> Translator:
        """The translator of a run folder.

        Args:
            run: an open run, or its folder.
            checkpoint: `last`, `best`, a step or `average:N`; by default the average that the
                run's configuration asks for.
            config: how to search; by default as the run's configuration says.
            device: `auto`, `cpu` or `cuda`.
            prepared: bring the weights into the form that is fast and that `decode.precision`
                asks for; False leaves the model as it was trained, for whoever wants the weights.

        Raises:
            MtkitError: if there is no such run, checkpoint or device.
        """
        if not isinstance(run, Run):
            run = Run.open(Path(run))
        tokenizer = run.tokenizer()
        weights, description = run.select(checkpoint)
        place = choose_device(device)
        with torch.device("meta"):
            model = Transformer(run.config.model, len(tokenizer), PAD_ID)
        run.load_into(model, weights)
        log.info("%s: %s", run.path, description)
        config = config or run.config.decode
        model.to(place).eval()
        if prepared:
            prepare(model, choose_precision(config.precision, place), place)
        choose_matrix_route(place)
        keep_freed_memory()
        translator = cls(model, tokenizer, config, device=place)
        translator.checkpoint = description
        return translator

    def translate(
        self, lines: Iterable[str], *, prefixes: Iterable[str] | None = None
    ) -> Iterator[str]:
        """The best translation of each line, in order.

        Reads `lines` in windows and yields a window's translations when all of it is translated;
        memory is bounded by the window.

        Args:
            lines: of the source language.
            prefixes: what each translation is to begin with, a line each; empty for free choice.

        Raises:
            ValueError: if there are more or fewer prefixes than lines, when that is reached.
        """
        for hypotheses in self.translate_nbest(lines, n_best=1, prefixes=prefixes):
            yield hypotheses[0].text

    def translate_nbest(
        self, lines: Iterable[str], *, n_best: int, prefixes: Iterable[str] | None = None
    ) -> Iterator[list[Translation]]:
        """The `n_best` best translations of each line, best first; there may be fewer."""
        if prefixes is None:
            prefixes = itertools.repeat("")
            pairs = zip(lines, prefixes, strict=False)
        else:
            pairs = zip(lines, prefixes, strict=True)
        for first, window in windows(pairs, size=lambda pair: len(pair[0]) + len(pair[1])):
            yield from self.translate_window(
                [line for line, _ in window],
                first_line=first,
                n_best=n_best,
                prefixes=[prefix for _, prefix in window],
            )

    def translate_window(
        self,
        lines: list[str],
        *,
        first_line: int = 1,
        n_best: int = 1,
        prefixes: list[str] | None = None,
    ) -> list[list[Translation]]:
        """Translate lines all at once; `first_line` is the number of the first, for notes."""
        encoded = self._encode_sources(lines, first_line=first_line)
        begun = self.tokenizer.encode_batch(prefixes) if prefixes is not None else [[]] * len(lines)
        # A blank line stays one; a model would invent a sentence for it.
        results = [[Translation("", 0.0, 0.0)] for _ in lines]
        wanted = np.array([i for i, ids in enumerate(encoded) if ids], dtype=np.int64)
        if not len(wanted):
            return results
        lengths = np.array([len(encoded[i]) + 1 for i in wanted])
        budget = max(self.config.batch_tokens, int(lengths.max()))
        for rows in plan_batches(lengths, lengths, budget=budget):
            batch = [int(i) for i in wanted[rows]]
            found = self._translate_batch(
                [encoded[i] for i in batch], [begun[i] for i in batch], n_best=n_best
            )
            for index, translations in zip(batch, found, strict=True):
                results[index] = translations
        return results

    def score_given(self, sources: Iterable[str], translations: Iterable[str]) -> Iterator[Scored]:
        """What the model thinks of given translations, a line of each at a time, in order.

        A translation that the model found itself scores what `translate_nbest` reported, if it is
        cut into the subwords that the model chose, and ended by EOS. Where both lines are blank
        the score is 0, as there.

        Raises:
            ValueError: if one has more lines than the other, when that is reached.
        """
        pairs = zip(sources, translations, strict=True)
        first = 1
        while window := list(itertools.islice(pairs, WINDOW_LINES)):
            yield from self._score_window(*map(list, zip(*window, strict=True)), first_line=first)
            first += len(window)

    def _score_window(
        self, sources: list[str], translations: list[str], *, first_line: int
    ) -> list[Scored]:
        src = self._encode_sources(sources, first_line=first_line)
        tgt = self.tokenizer.encode_batch(translations)
        results = [Scored((), (), 0.0, 0.0)] * len(src)
        wanted = np.array([i for i in range(len(src)) if src[i] or tgt[i]], dtype=np.int64)
        if not len(wanted):
            return results
        lengths = [np.array([len(side[i]) + 1 for i in wanted]) for side in (src, tgt)]
        longest = max(int(side.max()) for side in lengths)
        for rows in plan_batches(*lengths, budget=max(self.config.batch_tokens, longest)):
            batch = [int(i) for i in wanted[rows]]
            found = self._score_batch([src[i] for i in batch], [tgt[i] for i in batch])
            for index, scored in zip(batch, found, strict=True):
                results[index] = scored
        return results

    def _encode_sources(self, lines: list[str], *, first_line: int) -> list[list[int]]:
        """Ids of each line without EOS, cut to what the configuration allows, with a note."""
        encoded = self.tokenizer.encode_batch(lines)
        for line, ids in zip(lines, encoded, strict=True):
            if not line.strip():
                # Some spaces, such as U+0085, are pieces to the tokenizer.
                ids.clear()
        limit = self.config.max_source_tokens - 1
        for offset, ids in enumerate(encoded):
            if len(ids) > limit:
                log.warning(
                    "line %d: cut from %d to %d tokens (decode.max_source_tokens)",
                    first_line + offset,
                    len(ids) + 1,
                    limit + 1,
                )
                del ids[limit:]
        return encoded

    @torch.inference_mode()
    def _score_batch(self, sources: list[list[int]], targets: list[list[int]]) -> list[Scored]:
        tgt_out = _padded([[*ids, EOS_ID] for ids in targets]).to(self.device)
        tgt_in = _padded([[BOS_ID, *ids] for ids in targets]).to(self.device)
        logits = self.model(_padded([[*ids, EOS_ID] for ids in sources]).to(self.device), tgt_in)
        truth = logits.gather(-1, tgt_out.unsqueeze(-1)).squeeze(-1)
        # Sums of many tokens are taken in float64.
        log_probs = (truth - logits.logsumexp(-1)).double().tolist()
        results = []
        for ids, row in zip(targets, log_probs, strict=True):
            real = row[: len(ids) + 1]
            penalty = length_penalty(
                len(real), self.config.length_penalty, self.config.length_penalty_form
            )
            pieces = tuple(self.tokenizer.piece(i) for i in [*ids, EOS_ID])
            results.append(Scored(pieces, tuple(real), sum(real), sum(real) / penalty))
        return results

    @torch.inference_mode()
    def _translate_batch(
        self, sources: list[list[int]], prefixes: list[list[int]], *, n_best: int
    ) -> list[list[Translation]]:
        config = self.config
        src = _padded([[*ids, EOS_ID] for ids in sources])
        beam_size = max(config.beam_size, n_best)
        found = beam_search(
            self.engine.step,
            self.engine.start(src.to(self.device), beam_size),
            max_lengths=[
                self._limit(len(ids) + 1, len(prefix))
                for ids, prefix in zip(sources, prefixes, strict=True)
            ],
            beam_size=beam_size,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            alpha=config.length_penalty,
            penalty_form=config.length_penalty_form,
            n_best=n_best,
            constraints=Constraints(config.min_length, config.no_repeat_ngram, prefixes),
            device=self.device,
        )
        return [
            [
                Translation(self.tokenizer.decode(h.tokens), h.score, h.log_prob, h.finished)
                for h in hypotheses
            ]
            for hypotheses in found
        ]

    def _limit(self, source: int, prefix: int) -> int:
        """The most tokens of an output, EOS counted, for so many of source and forced prefix."""
        longest = source + self.config.max_extra_length
        if self.config.max_length is not None:
            longest = min(longest, self.config.max_length + 1)
        return max(longest, prefix + 1)


def _padded(sentences: list[list[int]]) -> Tensor:
    """(B, T) ids of the sentences, padded to the longest."""
    ids = torch.full((len(sentences), max(map(len, sentences))), PAD_ID)
    for row, sentence in enumerate(sentences):
        ids[row, : len(sentence)] = torch.tensor(sentence)
    return ids


def ready_lines(lines: Iterable[str]) -> Iterator[list[str]]:
    """Windows of whatever lines are there: many from a file, one at a time from a person.

    A thread reads ahead by at most a window, so memory stays bounded and nobody waits for a full
    window. An error while reading is raised here, after the lines before it.
    """
    waiting: queue.Queue[str | BaseException | None] = queue.Queue(maxsize=WINDOW_LINES)

    def read() -> None:
        try:
            for line in lines:
                waiting.put(line)
            waiting.put(None)
        except BaseException as error:  # told to the reader's owner
            waiting.put(error)

    threading.Thread(target=read, daemon=True).start()
    while True:
        item = waiting.get()
        window: list[str] = []
        characters = 0
        while isinstance(item, str):
            window.append(item)
            characters += len(item)
            if len(window) == WINDOW_LINES or characters > WINDOW_CHARACTERS:
                break
            try:
                item = waiting.get_nowait()
            except queue.Empty:
                break
        if window:
            yield window
        if item is None:
            return
        if isinstance(item, BaseException):
            raise item


def windows(items: Iterable[T], *, size: Callable[[T], int]) -> Iterator[tuple[int, list[T]]]:
    """Full windows, each with the number of its first line, from 1; `size` is in characters."""
    first, window, characters = 1, [], 0
    for item in items:
        window.append(item)
        characters += size(item)
        if len(window) == WINDOW_LINES or characters > WINDOW_CHARACTERS:
            yield first, window
            first, window, characters = first + len(window), [], 0
    if window:
        yield first, window
