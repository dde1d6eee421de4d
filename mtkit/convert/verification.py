"""Checks that an exported model gives the same translations and log-probabilities as the run."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from mtkit.base.errors import MtkitError, in_words
from mtkit.base.invisible import visible
from mtkit.base.language_id import find_code
from mtkit.convert.export_record import Quantization
from mtkit.run_folder import Run
from mtkit.score import score
from mtkit.tokenizer import Tokenizer, Vocabularies
from mtkit.translate import Translator

log = logging.getLogger(__name__)

# Lines whose log-probabilities are compared, and lines that other software gets at a time.
COMPARED_LINES = ROWS_AT_A_TIME = 32


class CheckText(NamedTuple):
    """The text of a check: its name, and source lines without invisible characters.

    References are their translations, if known. Of a translation that is longer than `positions`,
    those of the other model, this many tokens are compared.
    """

    name: str
    lines: list[str]
    references: Sequence[str] = ()
    positions: int | None = None


@dataclass(frozen=True)
class Bounds:
    """The least share of equal translations, and the largest difference of log-probabilities."""

    identical: float
    difference: float

    def __str__(self) -> str:
        few = round(2 / (1 - self.identical))
        return (
            f"at least {self.identical:.0%} of the lines (of fewer than {few} lines, all but one) "
            f"and at most {self.difference:g}"
        )


BOUNDS: dict[Quantization, Bounds] = {
    "float32": Bounds(0.99, 1e-3),
    "float16": Bounds(0.9, 0.1),
    "int8": Bounds(0.5, 2.0),
}


@dataclass(frozen=True)
class Agreement:
    """The comparison of two models.

    `bleu` is that of the second model against the first, and `difference` the largest one of the
    log-probabilities of a token, in `compared` lines.
    """

    text: str
    lines: int
    identical: int
    bleu: float
    difference: float
    compared: int

    def holds(self, bounds: Bounds) -> bool:
        """Whether it is within bounds; one line may always differ, because of a tie."""
        # NaN is not within bounds.
        allowed = max(1, int(self.lines * (1 - bounds.identical) + 1e-9))
        return self.lines - self.identical <= allowed and self.difference <= bounds.difference

    def required(self, bounds: Bounds) -> str:
        """What is required, in words."""
        return str(bounds)

    def __str__(self) -> str:
        # That of identical lines can be 0, where all are short.
        bleu = f" BLEU of one against the other {self.bleu:.2f};"
        return (
            f"{self.identical:,} of {in_words(self.lines)} of {self.text} identical (greedy "
            f"search);{bleu * (self.identical < self.lines)} log-probabilities in "
            f"{in_words(self.compared)} differ by at most {self.difference:.1e}"
        )


class LoadedModel(Protocol):
    """A model loaded by some software, with its tokenizer."""

    def translate(self, lines: Sequence[str]) -> list[str]:
        """The translation of each line."""

    def log_probs(self, sources: Sequence[str], targets: Sequence[str]) -> list[Tensor]:
        """Log-probabilities (T,) of the tokens of each given translation, including EOS."""


def accept(agreed: Agreement, bounds: Bounds, *, refusal: str) -> None:
    """Report a comparison, or refuse one that is not within bounds: MtkitError with these words."""
    if not agreed.holds(bounds):
        raise MtkitError(f"{refusal}: {agreed}; {agreed.required(bounds)} are required")
    log.info("checked: %s", agreed)


def compare(
    ours: LoadedModel,
    theirs: LoadedModel,
    text: CheckText,
    translations: Sequence[Sequence[str]] | None = None,
    *,
    targets: Sequence[str] | None = None,
) -> Agreement:
    """The comparison of two models by their translations of a text, and by log-probabilities.

    These are of `targets`, by default of the first model's translations.
    """
    lines = text.lines
    translations = translations or [of.translate(lines) for of in (ours, theirs)]
    mine, other = (list(map(comparable, of_model)) for of_model in translations)
    batch = lines[:COMPARED_LINES], (targets or mine)[:COMPARED_LINES]
    scored = ([rows[: text.positions] for rows in of.log_probs(*batch)] for of in (ours, theirs))
    differences = [
        float((first - second).abs().max()) if len(first) == len(second) else torch.inf
        for first, second in zip(*scored, strict=True)
    ]
    return Agreement(
        text=text.name,
        lines=len(lines),
        identical=sum(first == second for first, second in zip(mine, other, strict=True)),
        bleu=score(other, [mine]).value,
        # If one is NaN, this is NaN too.
        difference=torch.tensor(differences).max().item(),
        compared=len(differences),
    )


def comparable(text: str) -> str:
    """A translation without differences that are due to the tokenizers.

    Other software keeps invisible characters; Marian removes a space at the end, and has U+FFFD for
    bytes that are not a character.
    """
    text = visible(text)
    if "\ufffd" in text:
        text = re.sub(" +", " ", text.replace("\ufffd", ""))
    return text.strip()


class RunModel:
    """The model of a run folder."""

    def __init__(self, translator: Translator) -> None:
        self.translator = translator

    def translate(self, lines: Sequence[str]) -> list[str]:
        """The translation of each line."""
        return list(self.translator.translate(lines))

    def log_probs(self, sources: Sequence[str], targets: Sequence[str]) -> list[Tensor]:
        """Log-probabilities of the tokens of each given translation."""
        results = self.translator.score_given(sources, targets)
        return [torch.tensor(scored.log_probs) for scored in results]


def example_languages(vocabularies: Vocabularies) -> tuple[str, str]:
    """Two languages to translate between as an example, from English if it is there.

    Without tags on both sides the first one is empty, and without tags both.
    """
    codes = sorted(vocabularies.src.language_tags)
    english = find_code("en", codes)
    others = [code for code in codes if code != english] or codes
    if vocabularies.has_tags_on_both_sides:
        return (english, others[0]) if english else (others[0], others[-1])
    return "", next(iter(others), "")


def load_untagged(run: Run, **options: Any) -> Translator:
    """The translator of a run on the CPU, which puts no language tag before a source.

    For the check one text is as good as another, and other software gets the tag with the text.
    Only where both sides have tags, it is that of one direction.
    """
    vocabularies = run.tokenizers()
    example = example_languages(vocabularies)
    if not vocabularies.has_tags_on_both_sides:
        translator = Translator.load(run, device="cpu", tgt_lang=example[1] or None, **options)
        return Translator(replace(translator.runs, src_prefix=()), translator.decoder)
    directions = [(d.src_lang, d.tgt_lang) for d in run.manifest.data.directions]
    src_lang, tgt_lang = next(iter(directions), example)
    return Translator.load(run, device="cpu", src_lang=src_lang, tgt_lang=tgt_lang, **options)


def pieces_of(tokenizer: Tokenizer) -> list[str]:
    """All subwords of a vocabulary, in the order of their ids."""
    return [tokenizer.piece(i) for i in range(len(tokenizer))]


def by_length(
    sentences: Sequence[Sequence[Any]], translate: Callable[[list[int], int], list[str]]
) -> list[str]:
    """What `translate` gives for the indices of some sentences of equal length, and that length.

    Other software has a length limit for all sentences that it gets at a time.
    """
    texts = [""] * len(sentences)
    lengths = list(map(len, sentences))
    for length in sorted(set(lengths)):
        rows = [row for row, of_row in enumerate(lengths) if of_row == length]
        for start in range(0, len(rows), ROWS_AT_A_TIME):
            batch = rows[start : start + ROWS_AT_A_TIME]
            for row, text in zip(batch, translate(batch, length), strict=True):
                texts[row] = text
    return texts
