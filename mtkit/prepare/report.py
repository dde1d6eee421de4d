"""The result of a preparation."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


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
    """The result of `prepare`.

    Attributes:
        path: the prepared folder.
        pairs: number of pairs read, by split.
        dropped: number of training pairs dropped, by reason.
        overlaps: number of training pairs whose source, target, or both are in the validation or
            test set, dropped or not.
        fixed: number of lines that were fixed, by kind.
        misaligned: segments whose sides are misaligned: source, first and last line, and offset.
        samples: some dropped pairs for each reason, from all parts of the corpus.
        vocab_sizes: vocabulary size, of both sides together or of each.
        tokens: source and target tokens of the kept training pairs, with EOS.
        shares: of multilingual data, for each direction the number of its kept training pairs, and
            its share of the pairs of an epoch.
        noise: number of training pairs that got each kind of noise with a probability above 0.
        tags: number of kept training pairs with each tag of a corpus.
        in_training: number of pairs of each validation and test set that are kept training pairs
            too.
        warnings: sentences about wrong languages, and about sets that share pairs with the
            training data.
        seconds: wall time of each stage; 0 for the parts that a stopped run had finished.
    """

    path: Path
    pairs: dict[str, int]
    dropped: dict[str, int]
    overlaps: tuple[int, int, int]
    fixed: dict[str, int]
    misaligned: list[tuple[str, int, int, int]]
    samples: list[Sample]
    vocab_sizes: tuple[int, ...]
    tokens: tuple[int, int]
    seconds: dict[str, float]
    shares: dict[str, tuple[int, float]] = field(default_factory=dict)
    noise: dict[str, int] = field(default_factory=dict)
    tags: dict[str, int] = field(default_factory=dict)
    in_training: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def vocabulary(self) -> str:
        """The vocabulary size of both sides together, or those of the source and the target."""
        sizes = [f"{size:,}" for size in self.vocab_sizes]
        return sizes[0] if len(sizes) == 1 else f"source {sizes[0]}, target {sizes[1]}"
