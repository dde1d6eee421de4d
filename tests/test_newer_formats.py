"""A file of a newer version, whose version is raised by hand, is refused in one line."""

import json
from pathlib import Path

import pytest
from conftest import reseal
from support.command_line import Place

from mtkit import __version__
from mtkit.align import AlignmentHead, AlignmentSettings

PREPARE = "prepare new --src-lang en --tgt-lang de --train a.en a.de --valid a.en a.de"
PREPARE += " --tokenizer-from"
RUN, STATE = "runs/tiny", "runs/tiny/checkpoints/step-00000004/state.json"


@pytest.fixture
def folders(trained) -> Place:
    for name in ("a.en", "a.de"):
        trained.write(name, "a\n")
    return trained


def write_as_newer(file: Path, version: int) -> None:
    """Have a sealed file say that it has this format, with a key that this version does not know.

    The checksum is right, as that of a newer version would be.
    """

    def change(content):
        content |= {"format": version, "of_a_newer_version": True}

    reseal(file, change)


def refusal(place: str, version: int, newest: int) -> str:
    return (
        f"mtkit: error: {place}: was written by a newer mtkit (format {version}, this one reads up "
        f"to {newest}); install a newer mtkit"
    )


# The newest formats of a run, of prepared data and of a checkpoint, and what reads them.
OF_RUN = [
    "translate",
    "score",
    "train --run runs/tiny",
    "export runs/tiny out --format safetensors",
    "train --config fine-tune --init-from runs/tiny",
    f"{PREPARE} runs/tiny",
]
OF_DATA = ["train --config demo --run runs/new", "train --config demo --dry-run"]
OF_DATA += ["score --data data/tiny", f"{PREPARE} data/tiny"]
# Training does not set it aside as damaged.
OF_CHECKPOINT = ["translate", "translate --checkpoint best", "translate --engine torch"]
OF_CHECKPOINT += ["train --run runs/tiny --set train.max_steps=5"]


@pytest.mark.parametrize(
    ("file", "shown", "newest", "command"),
    [
        *((f"{RUN}/manifest.json", RUN, 3, command) for command in OF_RUN),
        *(("data/tiny/manifest.json", "data/tiny", 5, command) for command in OF_DATA),
        *((STATE, STATE, 2, command) for command in OF_CHECKPOINT),
    ],
)
def test_a_run_prepared_data_and_a_checkpoint(file, shown, newest, command, folders):
    write_as_newer(folders.folder / file, newest + 1)
    assert folders.refused(*command.split()) == refusal(shown, newest + 1, newest)


def test_a_setting_that_only_a_newer_version_has(folders):
    config = folders.folder / "runs/tiny/config.yaml"
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace("decode:\n", "decode:\n  of_a_newer_version: 1\n"), "utf-8")
    assert "(the run was made" not in folders.refused("translate")
    manifest = folders.folder / "runs/tiny/manifest.json"
    reseal(manifest, lambda content: content["versions"].update(mtkit="99.0"))
    assert folders.refused("translate").endswith(
        f" (the run was made by mtkit 99.0, and this is mtkit {__version__})"
    )


def test_the_chosen_heads_of_word_alignments(folders):
    head = AlignmentHead(layer=1, head=1, step="input")
    settings = AlignmentSettings(heads=[head], error_rate=0.5, pairs=3, reference="gold")
    settings.save(folders.folder / "runs/tiny")
    write_as_newer(folders.folder / "runs/tiny/alignment.json", 2)
    assert folders.refused("align", "a.en", "a.de") == refusal("runs/tiny/alignment.json", 2, 1)


def test_the_record_of_an_export(folders):
    pytest.importorskip("transformers")
    export = ("export", "runs/tiny", "out", "--format", "huggingface")
    assert folders.mtkit("-q", *export).status == 0
    record = folders.folder / "out/export.json"
    content = json.loads(record.read_text(encoding="utf-8"))
    record.write_text(json.dumps(content | {"record_format": 2}), encoding="utf-8")
    assert folders.refused("import", "out", "runs/back") == refusal("out/export.json", 2, 1)
