"""A random run of every kind of vocabulary that there is: of one's own, and imported."""

from pathlib import Path
from typing import Any

import torch
from conftest import UNTRAINED, changed, number_pairs, of_directions, random_run, write_pairs
from support.m2m100 import write_m2m100
from support.marian import Shape, write_marian
from support.prepared import prepare_several

from mtkit.convert import import_model
from mtkit.data import PreparedData
from mtkit.run_folder import Run
from mtkit.tokenizer import Tokenizer

# Of preparing numbers.
USUAL: dict[str, Any] = {
    "max_ratio": 100.0,
    "min_script": 0.0,
    "workers": 1,
    "drop_wrong_language": False,
}
# The languages that each kind of run has, of which a new one begins as the second.
KINDS = {
    "bpe with tags on both sides": ("en", "de"),
    "unigram with tags on the source": ("en", "de"),
    "a vocabulary for each side": ("en", "de"),
    "marian": ("en", "de"),
    "marian with two matrices": ("en", "de"),
    "m2m100": ("en", "de"),
    "nllb": ("eng_Latn", "deu_Latn"),
}


def _own_run(folder: Path, kind: str) -> Run:
    pairs = write_pairs(folder, "old", number_pairs(160, seed=1))
    directions = [{"src_lang": "en", "tgt_lang": "de", "train": [pairs], "valid": pairs}]
    files = {"train": [pairs[::-1]], "valid": pairs[::-1]}
    directions.append({"src_lang": "de", "tgt_lang": "en", **files})
    model_type = "unigram" if kind.startswith("unigram") else "bpe"
    prepare_several(
        "old",
        folder / "old",
        directions=directions,
        vocab_size=330 if kind.startswith("bpe") else 295,
        tags="both" if "both" in kind else "source",
        model_type=model_type,
        shared_vocab="each side" not in kind,
        **USUAL,
    )
    data = PreparedData.open(folder / "old")
    config = changed(UNTRAINED, "model", output_bias=True)

    def change(model: Any, _: Tokenizer) -> None:
        torch.nn.init.normal_(model.output_bias)

    run = random_run(folder / "run", data, 5, config=config, change=change)
    return of_directions(run, ("en", "de"), ("de", "en"))


def run_of_kind(folder: Path, kind: str) -> Run:
    """The run of a kind; transformers must be there for an imported one."""
    if kind in ("m2m100", "nllb"):
        write_m2m100(folder / "source", "m2m100" if kind == "m2m100" else "nllb")
    elif kind.startswith("marian"):
        write_marian(folder / "source", Shape(tags=("de", "fr"), separate="two" in kind))
    else:
        return _own_run(folder, kind)
    return import_model(str(folder / "source"), folder / "run").run
