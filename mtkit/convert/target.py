"""What an export needs to know of the software that it is for: one object for each format."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtkit.base.errors import MtkitError
from mtkit.base.packages import Extra
from mtkit.config import Config, DecodeConfig, ModelConfig
from mtkit.convert.check import Agreement, CheckText, LoadedModel, RunModel, compare
from mtkit.convert.export_record import ExportRecord, Format, Quantization
from mtkit.run_folder import Run
from mtkit.tokenizer import Vocabularies
from mtkit.translate import Translator

# Of each setting of a model: whether it is impossible, and what the software has instead.
Limits = Mapping[str, tuple[bool, str]]


def _compare(
    translator: Translator, _: Run, theirs: LoadedModel, text: CheckText, __: Quantization
) -> Agreement:
    return compare(RunModel(translator), theirs, text)


@dataclass(frozen=True)
class Target:
    """Software that a run can be exported to.

    Attributes:
        name: the value of `--format`.
        library: the package of the extra `export` that loads the files; empty if mtkit does.
        model: the name of its model, for messages.
        needs, note: sentences for the card: what to install, and what to know.
        limits: the settings that it may not be able to express.
        write: writes a model into a folder.
        load: loads the files in a folder, with greedy search.
        usage: a few lines of code, or a command, that use an exported folder.
        quantizations: the types of the matrices that are possible, the default first.
        check: refuses a run by what is not a setting of the model.
        compare: compares what `load` gave with the run.
        suffix: if the export is a file, how its name ends; otherwise it is a folder.
        pack: makes that file of an exported folder.
        is_application: whether it translates one direction of a model with several, splits lines
            into sentences, and has its own settings of search.
        more_libraries: other packages that it needs.
        extra: the extra of mtkit that has the packages.
        hub_library: its name on the hub; by default `library`.
        code_language: of `usage`.
    """

    name: Format
    library: str
    model: str
    needs: str
    note: str
    limits: Callable[[ModelConfig], Limits]
    write: Callable[[Translator, Run, Path, ExportRecord], None]
    load: Callable[[Path, DecodeConfig], LoadedModel]
    usage: Callable[[Path, Config, Translator], str]
    quantizations: tuple[Quantization, ...] = ("float32",)
    check: Callable[[Translator, Run], None] = lambda translator, run: None
    compare: Callable[[Translator, Run, Any, CheckText, Quantization], Agreement] = _compare
    suffix: str = ""
    pack: Callable[[Path, Path], None] = lambda folder, file: None
    is_application: bool = False
    more_libraries: tuple[str, ...] = ()
    extra: Extra = "export"
    hub_library: str = ""
    code_language: str = "python"

    def check_expressible(self, config: ModelConfig) -> None:
        """Refuse a model that the software cannot express.

        Raises:
            MtkitError: naming the setting.
        """
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
    }


def first_language(vocabularies: Vocabularies) -> str:
    """One of the languages that a multilingual model translates to, as an example; else empty."""
    return min(vocabularies.src.language_tags, default="")


def example_tag(vocabularies: Vocabularies) -> str:
    """The tag of `first_language`, which other software needs before a source; else empty."""
    language = first_language(vocabularies)
    return f">>{language}<<" if language else ""


def quoted(text: str | Path) -> str:
    """A text or a path as a string literal of Python and of JavaScript."""
    return json.dumps(str(text), ensure_ascii=not str(text).isprintable())
