"""Export as a run folder of one checkpoint, which holds the averaged weights."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path

from mtkit.align import AlignmentSettings
from mtkit.check import RunChecks
from mtkit.config import Config, DecodeConfig, ModelConfig
from mtkit.convert.export_record import plain_greedy
from mtkit.convert.target import Export, Limits, Target, first_language
from mtkit.convert.verification import RunModel, load_untagged
from mtkit.run_folder import Run
from mtkit.translate import Translator


class _RunCopy(Target):
    """mtkit itself."""

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

    def limits(self, config: ModelConfig) -> Limits:
        return {}

    def write(self, export: Export) -> None:
        translator, run, folder, record = export
        manifest = run.manifest.shareable().model_copy(update={"exported": asdict(record)})
        config, vocabularies = run.config.shareable(), translator.vocabularies
        exported = Run.create(folder, config, vocabularies, manifest=manifest)
        weights = translator.model.state_dict()
        exported.save(max(record.steps), weights=weights, optimizer=None, state={})
        if alignment := AlignmentSettings.load(run.path):
            alignment.save(folder)
        checks = RunChecks.load(run.path)
        if checks is not None and checks.checkpoint == translator.checkpoint:
            checks.copy_files(run.path, folder, checkpoint=exported.selection(None).description)

    def load(self, folder: Path, decode: DecodeConfig) -> RunModel:
        return RunModel(
            load_untagged(Run.open(folder), config=plain_greedy(decode), linearised=True)
        )

    def usage(self, out: Path, config: Config, translator: Translator) -> str:
        language = first_language(translator.vocabularies)
        more = f" --tgt-lang {shlex.quote(language)}" if language else ""
        return f"mtkit translate --run {shlex.quote(str(out))}{more} < input.txt\n"


RUN_COPY = _RunCopy()
