"""What --force and --restart replace: only what the same command made."""

import shutil

import pytest
from conftest import copied_run
from support.command_line import Place

# A folder of another program that has the files by which mtkit knows its own.
FOREIGN = {
    "manifest.json": '{"name": "app"}',
    "config.yaml": "port: 80\n",
    "export.json": '{"format": 2}',
    "index.html": "<title>My page</title>",
    "app.js": "run()",
}


@pytest.fixture
def places(place, tiny_run) -> Place:
    copied_run(tiny_run, place.folder / "run")
    shutil.copytree(tiny_run.data_path, place.folder / "data")
    for name, changes in {"foreign": {}, "damaged": {"manifest.json": "{"}}.items():
        for file, text in {**FOREIGN, **changes}.items():
            (place.folder / name).mkdir(exist_ok=True)
            place.write(f"{name}/{file}", text)
    place.write("s.en", "one\n" * 20)
    place.write("s.de", "eins\n" * 20)
    place.write("c.yaml", "train: {max_steps: 1}\n")
    return place


PREPARE = "prepare x --train s.en s.de --valid s.en s.de --src-lang en --tgt-lang de --out {}"


@pytest.mark.parametrize(
    ("command", "own"),
    [
        (f"{PREPARE} --force", "data"),
        (f"{PREPARE} --dry-run", "data"),
        ("export run {} --format safetensors --force", ""),
        ("inspect one two --run run --output {} --force", ""),
        ("train --data data --config c.yaml --run {} --restart", "run"),
    ],
)
def test_a_folder_is_only_replaced_by_the_command_that_made_it(command, own, places):
    for name in {"run", "data", "foreign", "damaged", "."} - {own}:
        assert places.refused(*command.format(name).split()).startswith(f"mtkit: error: {name}: ")


def test_a_prepared_folder_is_no_model_that_can_be_imported(places):
    line = places.refused("import", "data", "out")
    assert line.endswith("data: is a prepared folder of mtkit, and needs no import")
