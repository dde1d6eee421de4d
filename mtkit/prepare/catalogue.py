"""The catalogue of corpora that `prepare` knows by name: sources, sizes and licences.

They are in `catalogue.yaml`. `CATALOGUE` lists them, each in both directions, and `find_corpus`
looks one up. The grammar in `examples/demo/` wrote the text of the demo corpora, `demo.tsv.bz2`.
"""

from __future__ import annotations

import bz2
import difflib
from dataclasses import dataclass, replace
from importlib import resources

from mtkit.base.errors import MtkitError
from mtkit.base.yaml import parse_yaml
from mtkit.data import Split

BUILT_IN = "built in"


@dataclass(frozen=True)
class CatalogueEntry:
    """One entry of the catalogue: a corpus, read in one direction.

    `train_pairs` is the published size. `download_mb` is roughly the size of the first download
    (None for a built-in corpus). `source` is the repository on the hub, or `BUILT_IN`, and `config`
    its configuration. It has the splits train, validation and test, and each language has a column
    or a field of the column "translation".
    """

    family: str
    src_lang: str
    tgt_lang: str
    vocab_size: int
    train_pairs: int
    download_mb: int | None
    licence: str
    source: str
    config: str | None = None

    @property
    def name(self) -> str:
        """The name `mtkit prepare` takes, such as "wmt14-en-de"."""
        return f"{self.family}-{self.src_lang}-{self.tgt_lang}"


def _read_catalogue() -> tuple[CatalogueEntry, ...]:
    """The corpora of `catalogue.yaml`, each in both directions."""
    text = (resources.files("mtkit") / "prepare" / "catalogue.yaml").read_text(encoding="utf-8")
    corpora = [CatalogueEntry(**entry) for entry in parse_yaml(text)]
    return tuple(
        way
        for entry in corpora
        for way in (entry, replace(entry, src_lang=entry.tgt_lang, tgt_lang=entry.src_lang))
    )


CATALOGUE = _read_catalogue()


def find_corpus(name: str) -> CatalogueEntry:
    """The catalogue entry with this name; the error for another one suggests the most similar."""
    by_name = {corpus.name: corpus for corpus in CATALOGUE}
    if name in by_name:
        return by_name[name]
    typed = name.lower().replace("_", "-")
    nearest = [known for known in by_name if typed and known.startswith(typed)]
    nearest = nearest or difflib.get_close_matches(typed, by_name, n=1)
    hint = f"did you mean '{nearest[0]}'? " if nearest else ""
    raise MtkitError(
        f"unknown corpus '{name}': {hint}`mtkit prepare --list` prints the catalogue, "
        "and --train and --valid prepare your own files"
    )


def demo_corpus() -> dict[Split, list[tuple[str, str]]]:
    """The pairs of each split of the demo corpus, English first."""
    file = resources.files("mtkit") / "prepare" / "demo.tsv.bz2"
    rows = [row.split("\t") for row in bz2.decompress(file.read_bytes()).decode().splitlines()]
    splits: tuple[Split, ...] = ("train", "valid", "test")
    return {name: [(src, tgt) for split, src, tgt in rows if split == name] for name in splits}
