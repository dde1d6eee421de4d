"""Results of a preparation: of each stage, to resume after it, and of the whole."""

from __future__ import annotations

import logging
import math
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from mtkit.base.errors import MtkitError
from mtkit.base.files import Record, read_record, write_record
from mtkit.base.language_id import LanguageCounts
from mtkit.base.sentences import LONG_ENOUGH, LineFacts, split
from mtkit.check import Counts
from mtkit.prepare.source import Block

log = logging.getLogger(__name__)

# Pairs that are sampled evenly from the whole corpus.
SAMPLED = 100_000
# Ratios of lengths are counted in steps of this fraction of an octave.
_STEPS = 16


@dataclass(frozen=True)
class Sample:
    """A sample of a dropped pair; long sides are cut, and the file's name is one line."""

    reason: str
    file: str
    line: int
    src: str
    tgt: str


@dataclass(frozen=True)
class Report:
    """The result of `prepare`; the fields from `pairs` to `noise` are those of the manifest.

    Attributes:
        pairs: number of pairs read, by split.
        kept: number of training pairs kept.
        dropped: number of training pairs dropped, by reason.
        overlap: number of training pairs whose source (`src`), target (`tgt`), or both (`both`) are
            in the validation or test set, dropped or not.
        in_training: number of pairs of each validation and test set that are kept training pairs
            too.
        near_duplicates: the same of pairs that are nearly the same as one.
        tokens: source (`src`) and target (`tgt`) tokens of the kept training pairs, with EOS.
        noise: number of training pairs that got each kind of noise with a probability above 0.
        fixed: number of lines that were fixed, by kind.
        misaligned: segments whose sides are misaligned: source, first and last line, and offset.
        samples: some dropped pairs for each reason, from all parts of the corpus.
        vocab_sizes: vocabulary size, of both sides together or of each.
        shares: of multilingual data, for each direction the number of its kept training pairs, and
            its share of the pairs of an epoch.
        tags: number of kept training pairs with each tag of a corpus.
        warnings: sentences about wrong languages, about lines that may not belong together, and
            about sets that share pairs with the training data.
        marked: the kept pairs with findings, if they were checked.
    """

    path: Path
    pairs: dict[str, int]
    kept: int
    dropped: dict[str, int]
    overlap: dict[str, int]
    in_training: dict[str, int]
    near_duplicates: dict[str, int]
    tokens: dict[str, int]
    noise: dict[str, int]
    fixed: dict[str, int]
    misaligned: list[list[Any]]
    samples: list[Sample]
    vocab_sizes: tuple[int, ...]
    shares: dict[str, tuple[int, float]]
    tags: dict[str, int]
    warnings: list[str]
    marked: Counts | None

    @property
    def vocabulary(self) -> str:
        """The vocabulary size of both sides together, or those of the source and the target."""
        sizes = [f"{size:,}" for size in self.vocab_sizes]
        return sizes[0] if len(sizes) == 1 else f"source {sizes[0]}, target {sizes[1]}"


@dataclass
class CheckResult:
    """The result of the first stage besides its `PairRecords`; lists have an entry for each source.

    Attributes:
        pairs: number of pairs.
        digests: SHA-256 of the source side and of the target side, as lines of text.
        blocks: checksums of the blocks, to detect a source that changes later.
        overlap: numbers of pairs as in `Report`, in that order.
        fixed, misaligned, in_training: as in `Report`.
        languages: from `LanguageCheck`.
        warnings: those of `Report` that are known after the first stage.
    """

    pairs: list[int]
    digests: list[dict[str, str]] = field(default_factory=list)
    blocks: list[list[str]] = field(default_factory=list)
    fixed: list[dict[str, int]] = field(default_factory=list)
    overlap: list[int] = field(default_factory=lambda: [0, 0, 0])
    misaligned: list[list[Any]] = field(default_factory=list)
    languages: list[LanguageCounts] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    in_training: dict[str, int] = field(default_factory=dict)


@dataclass
class LineCounts:
    """What the training lines are like: how many have several sentences, and how long they are.

    Attributes:
        pairs: number of pairs, of which every n-th is sampled.
        sampled, several, longest: as in `LineFacts`.
        ratios: number of sampled pairs by the ratio of their lengths, in steps on a log scale.
    """

    pairs: int = 0
    sampled: int = 0
    several: int = 0
    longest: int = 0
    ratios: dict[str, int] = field(default_factory=dict)

    def add(self, block: Block, *, every: int, language: str) -> None:
        """Count the kept pairs of a block; `every` is the distance between two sampled pairs."""
        src, tgt = block
        self.longest = max([self.longest, *map(len, src)])
        first = -self.pairs % every
        self.pairs += len(src)
        steps: Counter[str] = Counter(self.ratios)
        for source, target in zip(src[first::every], tgt[first::every], strict=True):
            self.sampled += 1
            self.several += len(split(source.decode(), language)) > 1
            if len(source) >= LONG_ENOUGH:
                steps[str(math.floor(_STEPS * math.log2(len(target) / len(source))))] += 1
        self.ratios = dict(steps)

    def facts(self) -> LineFacts:
        """The counts as they are recorded."""
        seen, shortest = 0, {}
        for step, count in sorted((int(step), count) for step, count in self.ratios.items()):
            seen += count
            if 1000 * seen > sum(self.ratios.values()):
                shortest = {"shortest": round(2 ** (step / _STEPS), 3)}
                break
        return LineFacts(
            sampled=self.sampled, several=self.several, longest=self.longest, **shortest
        )


@dataclass
class EncodeResult:
    """The progress of the third stage; lists have an entry for each source.

    Attributes:
        blocks: number of finished blocks.
        sizes: sizes of the files so far.
        kept, dropped: numbers of pairs; those that were dropped by reason.
        tokens, noise: as in `Report`.
        samples: dropped pairs, by reason, each with the number that selected it.
        near: of `keep_nearest`.
    """

    kept: list[int]
    noise: dict[str, int]
    blocks: int = 0
    sizes: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=lambda: {"src": 0, "tgt": 0})
    samples: dict[str, list[list[Any]]] = field(default_factory=dict)
    near: dict[str, list[Any]] = field(default_factory=dict)
    lines: LineCounts = field(default_factory=LineCounts)


StageT = TypeVar("StageT", CheckResult, EncodeResult)


class _StageRecord(Record):
    """The record of a finished stage, for a run that resumes."""

    content: dict[str, Any]


def write_stage(path: Path, value: CheckResult | EncodeResult) -> None:
    """Record a stage, or its progress."""
    write_record(path, _StageRecord(content=asdict(value)))


def read_stage(path: Path, kind: type[StageT]) -> StageT | None:
    """The record that a stopped run left; None if there is none, or it is damaged."""
    if not path.is_file():
        return None
    try:
        content = read_record(path, _StageRecord, advice="this stage is repeated").content
    except MtkitError as error:
        log.warning("%s", error)
        return None
    return TypeAdapter(kind).validate_python(content)
