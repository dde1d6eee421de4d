"""The manifest of a run folder: what a run was made from, and by what."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from mtkit.data import Direction, Task
from mtkit.files import FileName, Record, sha256_of_json
from mtkit.imported import ImportRecord

FORMAT = 2


class DataOrigin(Record):
    """The prepared folder that a run is trained on.

    Attributes:
        name: of the corpus.
        path: path of the folder when the run was created.
        fingerprint: checksum of all files that training uses.
        src_lang, tgt_lang, directions, task: of the data.
    """

    name: str = ""
    path: FileName = ""
    fingerprint: str = ""
    src_lang: str = ""
    tgt_lang: str = ""
    directions: list[Direction] = Field(default_factory=list)
    task: Task = "translation"


class Initialisation(Record):
    """The weights that a run was started from.

    Attributes:
        run: path of the run that they belong to.
        weights: which of its checkpoints, in words.
        sha256: checksum of the weights.
        data: name of the data that they were trained on.
        licence: of the model, if it was imported.
    """

    run: FileName
    weights: str
    sha256: str
    data: str
    licence: str = ""


class RunManifest(Record):
    """The manifest of a run folder.

    Attributes:
        kind: of folder.
        format: version of the folder's layout.
        data: the training data.
        versions: of the software.
        seed: of the run.
        command: the command that created it.
        launch: the id of the launch that created it, with several workers.
        started_from: the weights of step 0, if they are not random.
        exported: the record of `mtkit export`, if it created the folder.
        imported: the record of `mtkit import`, if it created the folder.
        files: SHA-256 of the tokenizers, by file name.
        settings: those that may not change, by their dotted keys.
    """

    kind: Literal["run folder"] = "run folder"
    format: int = FORMAT
    data: DataOrigin = DataOrigin()
    versions: dict[str, str] = Field(default_factory=dict)
    seed: int | None = None
    command: list[FileName] = Field(default_factory=list)
    launch: str = ""
    started_from: Initialisation | None = None
    exported: dict[str, Any] | None = None
    imported: ImportRecord | None = None
    files: dict[str, str] = Field(default_factory=dict)
    settings: dict[str, Any] = Field(default_factory=dict)

    @property
    def identity(self) -> str:
        """One checksum of the settings, data and tokenizers of the run."""
        return sha256_of_json([self.settings, self.data.fingerprint, self.files])
