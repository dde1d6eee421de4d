"""Lines, and translators with other settings."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from mtkit import native
from mtkit.config import DecodeConfig
from mtkit.run_folder import Run
from mtkit.translate.pytorch.decoder import Torch
from mtkit.translate.requests import Translation
from mtkit.translate.translator import Translator

HOSTILE = [
    "one two three",
    "",
    " \t ",
    "a\u2028b\u2029c",
    "a\x85b\x0bc\x0cd\x1ce",
    "nul\x00in\x00it",
    "\ufeffmarked",
    "carriage\rreturn",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea e\u0301",
    "nine " * 40,
    "x" * 5000,
    "\u202eright to left\u202c",
    "</s> <s> <pad> <unk> <0x0A>",
    "\u3000",
    "last",
]


def loaded(
    run: Run | Sequence[Run],
    engine: str = "torch",
    *,
    config: DecodeConfig | None = None,
    **options: Any,
) -> Translator:
    """Translates on the CPU with an engine; skips the test where there is no native one."""
    if engine == "native" and (reason := native.available()):
        pytest.skip(reason)
    config = config or (run if isinstance(run, Run) else run[0]).config.decode
    config = config.model_copy(update={"engine": engine})
    return Translator.load(run, device="cpu", config=config, **options)


def with_batches_of(translator: Translator, batch_tokens: int) -> Translator:
    """The same run with other batches."""
    config = translator.config.model_copy(update={"batch_tokens": batch_tokens})
    return Translator.load(translator.runs.folders, config=config, device="cpu")


def numbers(count: int, seed: int = 1) -> list[str]:
    rng = random.Random(seed)
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "zebra"]
    return [" ".join(rng.choices(words, k=rng.randint(1, 9))) for _ in range(count)]


def changed_to(translator: Translator, **settings: Any) -> Translator:
    """The same models in PyTorch, under other settings of `decode`."""
    runs = replace(translator.runs, config=translator.config.model_copy(update=settings))
    return Translator(runs, Torch(translator.models, runs, translator.device))


def texts_of(nbests: Iterable[list[Translation]]) -> list[list[str]]:
    return [[translation.text for translation in nbest] for nbest in nbests]


def ids_of(translator: Translator, pieces: Iterable[str]) -> list[int]:
    return [translator.tokenizer._pieces.piece_to_id(piece) for piece in pieces]
