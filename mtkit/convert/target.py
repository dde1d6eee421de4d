"""What an export needs to know of the software that it is for: one object for each format."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from mtkit.base.errors import MtkitError
from mtkit.base.folders import check_writable, new_folder
from mtkit.base.packages import Extra
from mtkit.config import Config, DecodeConfig, ModelConfig
from mtkit.convert.export_record import ExportRecord, Format, Quantization, is_export
from mtkit.convert.verification import (
    Agreement,
    CheckText,
    LoadedModel,
    RunModel,
    compare,
    example_languages,
    load_untagged,
)
from mtkit.run_folder import Run
from mtkit.tokenizer import Vocabularies
from mtkit.translate import Translator

# Of each setting of a model: whether it is impossible, and what the software has instead.
Limits = Mapping[str, tuple[bool, str]]


class Export(NamedTuple):
    """A run that is exported, into a folder."""

    translator: Translator
    run: Run
    folder: Path
    record: ExportRecord


class Target(ABC):
    """Software that a run can be exported to.

    `name` is the value of `--format`, and `library` the package of the extra that loads the files,
    empty if mtkit does; it needs `more_libraries` too. `model` is the name of its model, for
    messages, and `hub_library` its own on the hub, by default `library`. `needs` and `note` are
    sentences for the card, whose `usage` is in `code_language`. The default quantization is first.
    `takes_settings` says whether its user sets the search and splits lines into sentences.
    """

    name: Format
    library: str
    model: str
    needs: str
    note: str
    quantizations: tuple[Quantization, ...] = ("float32",)
    more_libraries: tuple[str, ...] = ()
    extra: Extra = "export"
    hub_library: str = ""
    code_language: str = "python"
    takes_settings = True

    @abstractmethod
    def write(self, export: Export) -> None:
        """Write the model into the folder."""

    @abstractmethod
    def load(self, folder: Path, decode: DecodeConfig) -> LoadedModel:
        """Load the files in a folder; `decode` is `plain_greedy`."""

    @abstractmethod
    def usage(self, out: Path, config: Config, translator: Translator) -> str:
        """A few lines of code, or a command, that use an export."""

    def limits(self, config: ModelConfig) -> Limits:
        """The settings that it may not be able to express."""
        return common_limits(config)

    def open(
        self, run: Run, *, src_lang: str | None, tgt_lang: str | None, **more: Any
    ) -> Translator:
        """The translator of a run; MtkitError if the software cannot express its vocabularies."""
        return load_untagged(run, **more)

    def languages(self, export: Export) -> list[tuple[str, str]]:
        """The directions of an export, if they are known."""
        data = export.run.manifest.data
        pairs = [(direction.src_lang, direction.tgt_lang) for direction in data.directions]
        if not pairs and (data.src_lang or data.tgt_lang):
            pairs = [(data.src_lang, data.tgt_lang)]
        return pairs or [("", code) for code in export.translator.vocabularies.src.language_tags]

    @contextmanager
    def output(self, out: Path, *, force: bool) -> Iterator[Path]:
        """A folder for the files, which becomes the export; MtkitError if it cannot be written."""
        check_writable(out, force=force, kind="an export", place="OUT", is_kind=is_export)
        with new_folder(out) as folder:
            yield folder

    def compare(self, export: Export, theirs: Any, text: CheckText) -> Agreement:
        """Compare what `load` gave with the run."""
        return compare(RunModel(export.translator), theirs, text)

    def check_expressible(self, config: ModelConfig) -> None:
        """Refuse a model that the software cannot express: an MtkitError names the setting."""
        for key, (is_impossible, difference) in self.limits(config).items():
            if is_impossible:
                value = getattr(config, key)
                value = config.value_width if value is None else value  # d_v follows d_k
                raise MtkitError(
                    f"--format {self.name} cannot express model.{key} {value}: {self.model} "
                    f"{difference}; --format safetensors takes every model"
                )


def common_limits(config: ModelConfig) -> dict[str, tuple[bool, str]]:
    """The limits of other software in general."""
    width = config.d_model / config.n_heads
    return {
        "attention_window": (config.attention_window is not None, "sees every position"),
        "d_k": (config.key_width != width, f"has keys of d_model / n_heads, {width:g}"),
        "d_v": (config.value_width != width, f"has values of d_model / n_heads, {width:g}"),
        "positions": (config.positions == "words", "does not count words"),
        "attention_scale": (config.query_factor != 1.0, "divides scores by the root of d_k"),
        "narrow_attention": (config.narrow_attention, "has heads that see the whole vector"),
    }


def example_tag(vocabularies: Vocabularies) -> str:
    """The tag of a language to translate to, which other software needs before a source, or ''."""
    _, language = example_languages(vocabularies)
    return f">>{language}<<" if language else ""


def quoted(text: str | Path) -> str:
    """A text or a path as a string literal of Python and of JavaScript."""
    return json.dumps(str(text), ensure_ascii=not str(text).isprintable())
