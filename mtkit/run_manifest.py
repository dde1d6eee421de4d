"""The manifest of a run folder: what a run was made from, by what, and which settings are fixed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, ClassVar, Literal

from mtkit.base.files import FileName, Record, sha256_of_json, shareable_name
from mtkit.base.sentences import LineFacts
from mtkit.base.yaml import cut
from mtkit.config import Config
from mtkit.data import Direction, TaskName

# That of a model with tags on both sides is one more, because earlier versions know no such tags.
FORMAT = 2

# The settings that may change when a run resumes; any other change would make a different run.
MAY_CHANGE = (
    "data.dir",
    "train.max_steps",
    "train.finish_after",
    "train.finish_steps",
    "train.device_batch_tokens",
    "train.compile",
    "train.gpu_path",
    "train.fsdp",
    "train.log_every",
    "train.valid_every",
    "train.valid_early",
    "train.checkpoint_every",
    "train.keep_checkpoints",
    "train.keep_every",
    "train.best_metric",
    "train.best_set",
    "train.may_lose",
    "train.patience",
    "train.stall_timeout",
    "train.sustained_flops",
    "decode.",
)


class OldIds(Record):
    """Where the special subwords of a side were before an import, and how many subwords it had.

    `start` is the id that begins a translation.
    """

    size: int
    pad: int
    eos: int
    unk: int
    start: int


class OldIdsOfSides(Record):
    """Where the subwords of both sides were before an import, and the output bias of padding."""

    src: OldIds
    tgt: OldIds
    pad_bias: float


class ImportRecord(Record):
    """The record of `mtkit import`.

    `source` is the name of the model on the hub, or of its folder or file; `citations` are BibTeX;
    `subwords` are where they were, if an export can restore that.
    """

    source: str
    commit: str
    licence: str
    citations: list[str]
    subwords: OldIdsOfSides | None


class DataOrigin(Record):
    """The prepared folder that a run is trained on.

    Attributes:
        name: of the corpus.
        path: the way to it from the run folder; an absolute path in older manifests, and where the
            two folders have only the root in common. Empty in an export.
        fingerprint: checksum of all files that training uses.
        pairs: number of training pairs.
        licence: of the corpus, if the catalogue knows it.
    """

    name: str = ""
    path: FileName = ""
    fingerprint: str = ""
    src_lang: str = ""
    tgt_lang: str = ""
    directions: list[Direction] = field(default_factory=list)
    task: TaskName = "translation"
    pairs: int | None = None
    licence: str = ""
    lines: LineFacts | None = None

    @property
    def has_single_sentences(self) -> bool:
        """Whether a model of these data leaves out text if it gets several sentences at once."""
        lines = self.lines or LineFacts()
        return self.task == "translation" and lines.has_single_sentences


class Initialisation(Record):
    """The weights that a run was started from: of which run, and of which checkpoints, in words.

    `run` is a path in older manifests; `data` is what they were trained on; an imported model has a
    `licence`.
    """

    run: FileName
    weights: str
    sha256: str
    data: str
    licence: str = ""

    @property
    def run_name(self) -> str:
        """The name of the run's folder."""
        return Path(self.run).name

    @property
    def description(self) -> str:
        """The weights in a few words."""
        return f"{self.weights} of {self.run_name}"


class RunManifest(Record):
    """The manifest of a run folder.

    Attributes:
        format: version of the folder's layout.
        command: the command that created it, with the last parts of its paths.
        launch: the id of the launch that created it, with several workers.
        started_from: the weights of step 0, if they are not random.
        exported: the record of `mtkit export`, if it created the folder.
        imported: the record of `mtkit import`, if it created the folder.
        files: SHA-256 of the tokenizers, by file name.
        settings: those that may not change, by their dotted keys.
    """

    newest_formats: ClassVar[Mapping[str, int]] = {"run folder": FORMAT + 1}

    kind: Literal["run folder"] = "run folder"
    format: int = FORMAT
    data: DataOrigin = DataOrigin()
    versions: dict[str, str] = field(default_factory=dict)
    seed: int | None = None
    command: list[FileName] = field(default_factory=list)
    launch: str = ""
    started_from: Initialisation | None = None
    exported: dict[str, Any] | None = None
    imported: ImportRecord | None = None
    files: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def converted_by(self) -> str:
        """The command that made the run if no training did: `export` or `import`; else empty."""
        if self.imported is not None:
            return "import"
        return "" if self.exported is None else "export"

    def shareable(self) -> RunManifest:
        """The same without the folders of this machine."""
        origin = self.started_from
        return self.model_copy(
            update={
                "data": self.data.model_copy(update={"path": ""}),
                "command": shareable_command(self.command),
                "started_from": origin and origin.model_copy(update={"run": origin.run_name}),
            }
        )

    @property
    def identity(self) -> str:
        """One checksum of the settings, data and tokenizers of the run."""
        return sha256_of_json([self.settings, self.data.fingerprint, self.files])


def shareable_command(arguments: Sequence[str]) -> list[str]:
    """A command line without the folders of this machine: absolute paths have their last part."""
    program, *rest = arguments or [""]
    parts = (argument.rpartition("=") for argument in rest)
    named = [Path(program).name.replace("__main__.py", "mtkit")] if program else []
    return named + [f"{key}{sign}{shareable_name(value)}" for key, sign, value in parts]


def path_of_data(data: Path, run: Path) -> str:
    """The way from a run folder to its prepared folder, for `DataOrigin`."""
    data, run = data.resolve(), run.resolve()
    shared = os.path.commonpath((data, run))
    return str(data) if shared == data.root else os.path.relpath(data, run)


def fixed_settings(config: Config, may_change: Sequence[str] = MAY_CHANGE) -> dict[str, Any]:
    """The settings that may not change in a run, by their dotted keys.

    `may_change` has keys, and sections with a trailing dot.
    """
    return {
        f"{section}.{key}": value
        for section, settings in config.model_dump().items()
        for key, value in settings.items()
        if f"{section}." not in may_change and f"{section}.{key}" not in may_change
    }


def differences(old: Config, new: Config, *, ignore: Sequence[str] = ()) -> list[str]:
    """Dotted keys in which two configurations differ, each with both values."""
    after = fixed_settings(new, ignore)
    return [
        f"{key} ({_as_yaml(value)} became {_as_yaml(after[key])})"
        for key, value in fixed_settings(old, ignore).items()
        if value != after[key]
    ]


def _as_yaml(value: Any) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else cut(str(value))
