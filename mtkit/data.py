"""The prepared folder `data/NAME`: its files, and how they are read.

`prepare.writer` writes them. This module does not use PyTorch, which every process of a preparation
would have to load.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from mtkit.base.arrays import concat_ranges, pad_rows
from mtkit.base.errors import MtkitError
from mtkit.base.files import MANIFEST, Record, parse_record, read_record, sha256_of, sha256_of_json
from mtkit.base.models import Limits, Natural
from mtkit.base.sentences import LineFacts
from mtkit.base.text import read_lines
from mtkit.tokenizer import PAD_ID, VOCABULARY_FILES, Vocabularies

Split = Literal["train", "valid", "test"]
# Before the names of further validation sets, in the names of their splits: valid@news.
ALSO = "valid@"
# What a model does: with parsing, the target text is trees in brackets, one per line, and the
# encoded targets are those trees linearised.
TaskName = Literal["translation", "parsing"]
IntArray = npt.NDArray[np.int64]
Lengths = npt.NDArray[np.int32]

# That of data with tags on both sides is one more, because earlier versions know no such tags.
FORMAT = 4
DROPPED = "dropped.tsv.gz"
# Held-out pairs that are nearly the same as a training pair; without, there are none.
NEAR_DUPLICATES = "near_duplicates.tsv"
# Files that say how the data were made. Training does not read them.
_LISTS = (DROPPED, NEAR_DUPLICATES)
# A link is two numbers of this type. A side of a pair with links has fewer words.
LINK_TYPE = np.dtype("<u2")
# The name of word alignments, beside those of the two sides.
LINKS = "links"
# The start of every n-th sentence is stored.
_STRIDE = 8


class TokenArray:
    """Sentences as one flat, memory-mapped array of ids, each with EOS at the end.

    Ids and lengths are read from the disk when they are used; memory holds one number for every
    eight sentences.

    Attributes:
        lengths: tokens of each sentence, including EOS.
    """

    def __init__(self, ids: npt.NDArray[Any], lengths: npt.NDArray[Any]) -> None:
        self._ids = ids
        lengths = np.asarray(lengths)
        # A signed view, so that differences are signed; this needs no copy.
        self.lengths: Lengths = (
            lengths.view(np.int32) if lengths.dtype == np.uint32 else lengths.astype(np.int32)
        )
        whole = self.lengths[: len(lengths) // _STRIDE * _STRIDE].reshape(-1, _STRIDE)
        self._starts: IntArray = np.zeros(len(whole) + 1, np.int64)
        np.cumsum(whole.sum(axis=1, dtype=np.int64), out=self._starts[1:])

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> list[int]:
        start = int(self._starts_of(np.array([index]))[0])
        ids: list[int] = self._ids[start : start + self.lengths[index]].tolist()
        return ids

    def select(self, indices: IntArray) -> tuple[IntArray, IntArray]:
        """The ids of some sentences, one after another, and the length of each."""
        lengths = self.lengths[indices].astype(np.int64)
        return self._ids[concat_ranges(self._starts_of(indices), lengths)].astype(np.int64), lengths

    def part(self, start: int, end: int) -> TokenArray:
        """The sentences from number `start` to before `end`, of which there may be fewer."""
        end = min(end, len(self))
        first, last = self._starts_of(np.array([start, end])).tolist()
        return TokenArray(self._ids[first:last], self.lengths[start:end])

    def counts(self, vocab_size: int) -> IntArray:
        """(V,): how often each id occurs."""
        total = np.zeros(vocab_size, np.int64)
        # Block by block, because counting makes a copy.
        for start in range(0, len(self._ids), 1 << 22):
            total += np.bincount(self._ids[start : start + (1 << 22)], minlength=vocab_size)
        return total

    def padded(self, indices: IntArray) -> IntArray:
        """The sentences of `indices` as (B, longest), padded with `PAD_ID`."""
        return pad_rows(self._ids, self._starts_of(indices), self.lengths[indices], PAD_ID)

    def _starts_of(self, indices: IntArray) -> IntArray:
        """The positions where the sentences of `indices` start."""
        marks = indices // _STRIDE
        between = (marks * _STRIDE)[:, None] + np.arange(_STRIDE - 1)
        before = between < indices[:, None]
        lengths = self.lengths[np.where(before, between, 0)]
        starts: IntArray = self._starts[marks] + np.where(before, lengths, 0).sum(1)
        return starts


class Weighted(Record):
    """The entry of a training source in the manifest, without the fields not used in training.

    Its `kept` pairs are adjacent. Of an oversampling factor `weight`, the fraction is a random part
    of them once more.
    """

    model_config: ClassVar[dict[str, Any]] = {**Record.model_config, "extra": "ignore"}

    kept: Natural = 0
    weight: Annotated[float, Limits(gt=0)] = 1.0


@dataclass(frozen=True)
class SentencePairs:
    """Encoded sentence pairs: `tgt[i]` is the translation of `src[i]`.

    Attributes:
        sources: the sources of the pairs, in their order, if some are oversampled; if empty, every
            pair occurs once in an epoch.
        links: word alignments, if there are any: for each pair the numbers of a source word and a
            target word, link by link. Words are counted by `Tokenizer.begins_word`, from 0.
    """

    src: TokenArray
    tgt: TokenArray
    sources: tuple[Weighted, ...] = ()
    links: TokenArray | None = None

    def __len__(self) -> int:
        return len(self.src)

    def epoch_lengths(self) -> Iterator[tuple[float, Lengths, Lengths]]:
        """For sums over an epoch: a weight, and the lengths of at most a million pairs."""
        end = 0
        for source in self.sources or (Weighted(kept=len(self)),):
            start, end = end, end + source.kept
            for first in range(start, end, 1 << 20):
                part = slice(first, min(first + (1 << 20), end))
                yield source.weight, self.src.lengths[part], self.tgt.lengths[part]

    def epoch_tokens(self) -> int:
        """Target tokens of an epoch, each pair as often as it occurs."""
        return round(sum(weight * int(tgt.sum()) for weight, _, tgt in self.epoch_lengths()))


class FileFacts(Record):
    """The entry of a file in the manifest."""

    bytes: int
    sha256: str


class Direction(Record):
    """A direction of a multilingual model."""

    src_lang: str
    tgt_lang: str

    @property
    def name(self) -> str:
        """Its name in tables and of its validation set."""
        return f"{self.src_lang}-{self.tgt_lang}"


class PreparedDirection(Direction):
    """A direction of a prepared folder, whose pairs are together, in the order of the directions.

    `valid` and `test` are numbers of pairs, `also` names its further validation sets.
    """

    valid: Annotated[int, Limits(ge=1)]
    test: Natural
    also: list[str] = field(default_factory=list)


class DataManifest(Record):
    """The manifest of a prepared folder.

    Attributes:
        src_lang, tgt_lang: language codes; of multilingual data all of them, with commas.
        sources: of each split, where its pairs come from.
        lines: what the training lines are like; None for trees and in earlier folders.
        tokenizer_from: the folder that the vocabularies were copied from, and their checksums.
        token_type: how ids are stored, as numpy names it.
        files: all files but the manifest, by their names.
    """

    newest_formats: ClassVar[Mapping[str, int]] = {"prepared folder": FORMAT + 1}

    kind: Literal["prepared folder"]
    format: int
    name: str = ""
    licence: str | None = None
    task: TaskName = "translation"
    src_lang: str = ""
    tgt_lang: str = ""
    directions: list[PreparedDirection] | None = None
    temperature: float | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    sources: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    counts: dict[str, Any] = field(default_factory=dict)
    lines: LineFacts | None = None
    misaligned: list[dict[str, Any]] = field(default_factory=list)
    tokenizer_from: dict[str, Any] | None = None
    token_type: Literal["<u2", "<u4"]
    files: dict[str, FileFacts]


class DirectionText(NamedTuple):
    """The raw text of a direction: its languages, sources and references.

    `near` are the indices of pairs that are nearly the same as a training pair.
    """

    src_lang: str
    tgt_lang: str
    src: list[str]
    tgt: list[str]
    near: frozenset[int] = frozenset()


class PreparedData:
    """A prepared folder, complete and immutable.

    Files are compared with the checksums in the manifest when they are read, arrays by `verify`.
    """

    def __init__(self, path: Path, manifest: DataManifest) -> None:
        self.path = path
        self.manifest = manifest

    @classmethod
    def open(cls, path: Path) -> PreparedData:
        """The prepared folder at `path`.

        Raises:
            MtkitError: if there is none, or a file of it is missing or has another size.
        """
        manifest = read_record(path / MANIFEST, DataManifest, advice="prepare again")
        if manifest.format < FORMAT:
            raise MtkitError(f"{path}: prepared by another version of mtkit; prepare again")
        for name, facts in manifest.files.items():
            file = path / name
            if name not in _LISTS and (not file.is_file() or file.stat().st_size != facts.bytes):
                raise MtkitError(f"{file}: missing or of the wrong size; prepare again")
        return cls(path, manifest)

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.path.resolve().name

    @property
    def src_lang(self) -> str:
        """Code of the source language."""
        return self.manifest.src_lang

    @property
    def tgt_lang(self) -> str:
        """Code of the target language."""
        return self.manifest.tgt_lang

    @property
    def directions(self) -> list[PreparedDirection]:
        """The directions of multilingual data; of other data none."""
        return self.manifest.directions or []

    @property
    def language_pairs(self) -> list[tuple[str, str]]:
        """Source and target language of each direction; one unless the data is multilingual."""
        pairs = [(direction.src_lang, direction.tgt_lang) for direction in self.directions]
        return pairs or [(self.src_lang, self.tgt_lang)]

    @property
    def task(self) -> TaskName:
        """What a model learns from this data."""
        return self.manifest.task

    @property
    def fingerprint(self) -> str:
        """One SHA-256 of all files of this folder that training and scoring use."""
        files = self.manifest.files.items()
        seen: dict[str, Any] = {name: f.sha256 for name, f in files if name not in _LISTS}
        if sources := self._weighted():
            seen["weights"] = [[source.kept, source.weight] for source in sources]
        return sha256_of_json(seen)

    def verify(self) -> None:
        """Compare the SHA-256 of every file that training uses; an error names a changed one."""
        for name in self.manifest.files:
            if name not in _LISTS:
                self._verify_file(name)

    def tokenizers(self) -> Vocabularies:
        """The vocabularies of source and target; `MtkitError` if a file was changed."""
        for name in VOCABULARY_FILES:
            if name in self.manifest.files:
                self._verify_file(name)
        return Vocabularies.load(self.path)

    @property
    def valid_also(self) -> tuple[str, ...]:
        """The names of the further validation sets, in the order in which they were given."""
        return tuple(
            split.removeprefix(ALSO) for split in self.manifest.sources if split.startswith(ALSO)
        )

    def pairs(self, split: str) -> SentencePairs:
        """The encoded pairs of `train`, of `valid`, or of a further set (`also_split`)."""
        sources = self._weighted() if split == "train" else ()
        src, tgt = (self._tokens(split, side) for side in ("src", "tgt"))
        return SentencePairs(src, tgt, sources, self._links(split))

    def text(self, split: str) -> tuple[list[str], list[str]]:
        """Raw source and target lines of `valid` or `test`, or of a further set (`also_split`).

        Raises:
            MtkitError: if the data was prepared without that split, or a file was changed.
        """
        names = [text_name(split, side) for side in ("src", "tgt")]
        if not self.manifest.files.keys() >= {*names}:
            raise MtkitError(f"{self.path}: prepared without a {split} set (--{split})")
        for name in names:
            self._verify_file(name)
        src, tgt = (list(read_lines(self.path / name)) for name in names)
        return src, tgt

    def texts(self, split: Literal["valid", "test"]) -> list[DirectionText]:
        """The text of each direction that has such a set; raises as `text`."""
        src, tgt = self.text(split)
        sizes = [getattr(direction, split) for direction in self.directions] or [len(src)]
        ranges = itertools.pairwise(itertools.accumulate(sizes, initial=0))
        near = self._near_duplicates(split)
        return [
            DirectionText(
                *languages,
                src[start:end],
                tgt[start:end],
                frozenset(line - start for line in near if start <= line < end),
            )
            for languages, (start, end) in zip(self.language_pairs, ranges, strict=True)
            if start < end
        ]

    def _near_duplicates(self, split: str) -> list[int]:
        """The indices of the lines of a split in the list."""
        path = self.path / NEAR_DUPLICATES
        if NEAR_DUPLICATES not in self.manifest.files or not path.is_file():
            return []
        self._verify_file(NEAR_DUPLICATES)
        rows = (row.split("\t") for row in read_lines(path))
        return [int(row[1]) - 1 for row in rows if row[0] == split]

    def _verify_file(self, name: str) -> None:
        if sha256_of(self.path / name) != self.manifest.files[name].sha256:
            raise MtkitError(
                f"{self.path / name}: changed since it was prepared (its checksum is wrong); "
                "prepare again"
            )

    def _weighted(self) -> tuple[Weighted, ...]:
        """The sources of the training pairs; empty if all weights are 1."""
        name = str(self.path / MANIFEST)
        sources = [
            parse_record(facts, Weighted, name=name, advice="prepare again")
            for facts in self.manifest.sources.get("train", [])
        ]
        return tuple(sources) if any(source.weight != 1.0 for source in sources) else ()

    def _links(self, split: str) -> TokenArray | None:
        if array_names(split, LINKS)[0] not in self.manifest.files:
            return None
        return self._tokens(split, LINKS, LINK_TYPE)

    def _tokens(self, split: str, side: str, dtype: np.dtype[Any] | None = None) -> TokenArray:
        ids, lengths = array_names(split, side)
        dtype = dtype or np.dtype(self.manifest.token_type)
        return TokenArray(
            _map_array(self.path / ids, dtype), _map_array(self.path / lengths, np.dtype("<u4"))
        )


def is_prepared(folder: Path) -> bool:
    """Whether there is a prepared folder."""
    return (folder / MANIFEST).is_file()


def find_data(root: Path) -> Path:
    """The newest prepared folder under `root`; `MtkitError` if there is none."""
    manifests = list(root.glob(f"[!.]*/{MANIFEST}"))
    if not manifests:
        raise MtkitError(
            f"no prepared data under {root}/; run mtkit prepare first, as in "
            "mtkit prepare demo-en-de, or give --data"
        )
    return max(manifests, key=lambda manifest: manifest.stat().st_mtime_ns).parent


def also_split(name: str) -> str:
    """The name of the split of a further validation set."""
    return f"{ALSO}{name}"


def array_names(split: str, side: str) -> tuple[str, str]:
    """The files of the ids, and of the length of each sentence, of a side (or `LINKS`)."""
    return f"{split}.{side}.bin", f"{split}.{side}.lengths.bin"


def text_name(split: str, side: str) -> str:
    """The file of the raw lines of a side."""
    return f"{split}.{side}.txt"


def _map_array(path: Path, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    # An empty file cannot be mapped.
    if path.stat().st_size == 0:
        return np.empty(0, dtype)
    return np.memmap(path, dtype, mode="r")
