"""Export as a run folder of one checkpoint, which holds the averaged weights."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path

from mtkit.align import AlignmentSettings
from mtkit.check import RunChecks
from mtkit.config import Config, DecodeConfig, ModelConfig
from mtkit.convert.target import Export, Limits, Target
from mtkit.convert.trimming import Trimming
from mtkit.convert.verification import (
    Agreement,
    CheckText,
    RunModel,
    example_languages,
    load_untagged,
)
from mtkit.run_folder import Run
from mtkit.translate import Translator


class _RunCopy(Target):
    """mtkit itself; `trimming` makes the vocabulary smaller."""

    name = "safetensors"
    library = ""
    model = "mtkit"
    needs = "Needs mtkit. In this folder:"
    note = (
        "The file has one sentence per line. The folder is a run folder of mtkit, and can be "
        "scored, inspected, exported and fine-tuned."
    )
    hub_library = "mtkit"
    code_language = "sh"
    takes_settings = False

    def __init__(self, trimming: Trimming | None = None) -> None:
        self._trimming = trimming

    def limits(self, config: ModelConfig) -> Limits:
        return {}

    def write(self, export: Export) -> None:
        translator, run, folder, record = export
        trimming = self._trimming
        manifest = run.manifest.shareable().model_copy(update={"exported": asdict(record)})
        config, weights = run.config.shareable(), translator.model.state_dict()
        vocabularies = trimming.vocabularies if trimming else translator.vocabularies
        if trimming is not None:
            weights = trimming.weights(weights)
        exported = Run.create(folder, config, vocabularies, manifest=manifest)
        exported.save(max(record.steps), weights=weights, optimizer=None, state={})
        if alignment := AlignmentSettings.load(run.path):
            alignment.save(folder)
        # The forecasts know the probabilities of the whole vocabulary.
        checks = None if trimming else RunChecks.load(run.path)
        if checks is not None and checks.checkpoint == translator.checkpoint:
            checks.copy_files(run.path, folder, checkpoint=exported.selection(None).description)

    def load(self, folder: Path, decode: DecodeConfig) -> RunModel:
        return RunModel(load_untagged(Run.open(folder), config=decode, linearised=True))

    def compare(self, export: Export, theirs: RunModel, text: CheckText) -> Agreement:
        if self._trimming is not None:
            return self._trimming.compare(export.translator, theirs, text)
        return super().compare(export, theirs, text)

    def usage(self, out: Path, config: Config, translator: Translator) -> str:
        _, language = example_languages(translator.vocabularies)
        more = f" --tgt-lang {shlex.quote(language)}" if language else ""
        if translator.runs.tgt_prefix:
            more = f" --src-lang {translator.src_lang} --tgt-lang {translator.tgt_lang}"
        return f"mtkit translate --run {shlex.quote(str(out))}{more} < input.txt\n"


RUN_COPY = _RunCopy()
# With the subwords that are left.
trimmed_copy = _RunCopy
