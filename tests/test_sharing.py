"""A folder that is passed on names nothing of the machine that it was made on."""

import gzip
import json
import shutil
import socket
from pathlib import Path

import pytest
from conftest import changed, reseal

from mtkit.base.errors import MtkitError
from mtkit.base.files import shareable_name
from mtkit.convert.export_run import export
from mtkit.data import PreparedData
from mtkit.prepare import prepare_files
from mtkit.prepare.statistics import write_page
from mtkit.run_folder import Run
from mtkit.train.assembly import run as train

HOST = "telling-host"


def named(folder: Path, *, words: tuple[str, ...]) -> list[str]:
    """The files in a folder whose name or content has one of the words."""
    files = []
    for file in sorted(folder.rglob("*")):
        content = b"" if file.is_dir() else file.read_bytes()
        if file.suffix == ".gz":
            content = gzip.decompress(content)
        if any(word in file.name or word.encode() in content for word in words):
            files.append(str(file.relative_to(folder)))
    return files


@pytest.fixture(scope="module")
def project(tiny_text, tiny_config, tmp_path_factory) -> Path:
    """Two prepared folders, a run and its fine-tuning, all made with absolute paths."""
    place = tmp_path_factory.mktemp("telling-user") / "telling-project"
    shutil.copytree(tiny_text.folder, place / "texts")
    for side in ("en", "de"):
        with (place / "texts" / f"train.{side}").open("a", encoding="utf-8") as file:
            file.writelines(["one two\n" if side == "en" else "zwei eins\n"] * 2)
    pairs = {
        split: tuple(place / "texts" / f"{split}.{side}" for side in ("en", "de"))
        for split in ("train", "valid", "test")
    }
    languages = {"src_lang": "en", "tgt_lang": "de"}
    train_pairs = {"train": [pairs["train"]], "valid": pairs["valid"]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "gethostname", lambda: HOST)
        patch.setattr("sys.argv", [str(place / "bin" / "mtkit"), "train", f"--data={place}/data/a"])
        prepare_files(
            "a",
            place / "data" / "a",
            **languages,
            **train_pairs,
            test=pairs["test"],
            vocab_size=300,
            on_finished=lambda data, report: write_page(place / "data" / "a.html", data, report),
        )
        config = changed(tiny_config, "data", dir=str(place / "data" / "a"))
        train(config, PreparedData.open(place / "data" / "a"), place / "runs" / "base")
        more, base = place / "data" / "more", str(place / "runs" / "base")
        prepare_files("more", more, **languages, **train_pairs, tokenizer_from=Path(base))
        tuned = place / "runs" / "tuned"
        train(tiny_config, PreparedData.open(more), tuned, init_from=f"{base}:last")
    return place


@pytest.mark.parametrize("folder", ["data", "runs"])
def test_prepared_data_runs_and_their_pages_name_no_folder_above_and_no_host(folder, project):
    assert named(project / folder, words=("telling", str(project.parents[1]))) == []


def test_the_list_of_dropped_pairs_and_the_page_name_the_files(project):
    lines = gzip.decompress((project / "data" / "a" / "dropped.tsv.gz").read_bytes()).decode()
    assert "train.en and train.de\t202\tduplicate\n" in lines
    assert "train.en and train.de" in (project / "data" / "a.html").read_text(encoding="utf-8")
    origin = PreparedData.open(project / "data" / "a").manifest.sources["train"][0]
    assert (origin["src"], origin["tgt"]) == ("train.en", "train.de")


def test_two_files_of_one_name_are_told_apart_in_the_list_of_dropped_pairs(tiny_text, tmp_path):
    for name in ("one", "other"):
        shutil.copytree(tiny_text.folder, tmp_path / name)
    corpora = [
        (tmp_path / name / "train.en", tmp_path / name / "train.de") for name in ("one", "other")
    ]
    arguments = tiny_text.prepare_arguments() | {"train": corpora}
    prepare_files("both", tmp_path / "both", **arguments)
    lines = gzip.decompress((tmp_path / "both" / "dropped.tsv.gz").read_bytes()).decode()
    assert "train.en and train.de (source 2)\t1\tduplicate\n" in lines


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("/home/me/corpus.tsv", "corpus.tsv"),
        ("texts/corpus.tsv", "texts/corpus.tsv"),
        ("../me/corpus.tsv", "corpus.tsv"),
        ("corpus.tsv", "corpus.tsv"),
    ],
)
def test_a_file_is_named_as_it_was_given_if_that_names_no_folder_above(given, name):
    assert shareable_name(given) == name


def test_a_run_finds_its_data_after_the_project_was_moved(project, tmp_path):
    shutil.copytree(project, tmp_path / "moved")
    run = Run.open(tmp_path / "moved" / "runs" / "base")
    assert run.data_path.resolve() == tmp_path / "moved" / "data" / "a"
    assert PreparedData.open(run.data_path).fingerprint == run.manifest.data.fingerprint


def test_a_run_that_was_moved_alone_finds_its_data_by_name(project, tmp_path, monkeypatch):
    shutil.copytree(project / "runs" / "base", tmp_path / "base")
    monkeypatch.chdir(project)
    assert Run.open(tmp_path / "base").data_path == Path("data/a")


def test_the_command_of_a_run_is_kept_without_its_folders(project):
    assert Run.open(project / "runs" / "base").manifest.command == ["mtkit", "train", "--data=a"]


def test_a_run_made_with_absolute_paths_resumes_and_is_exported_without_them(
    project, tiny_config, tmp_path
):
    old, base = tmp_path / "old", str(project / "runs" / "base")
    shutil.copytree(project / "runs" / "tuned", old)

    def as_before(manifest: dict[str, object]) -> None:
        manifest["data"]["path"] = str(project / "data" / "more")  # type: ignore[index]
        manifest["started_from"]["run"] = base  # type: ignore[index]
        manifest["command"] = ["/opt/telling/bin/mtkit", "train", "--init-from", base]

    reseal(old / "manifest.json", as_before)
    config = changed(tiny_config, "train", max_steps=6)
    assert train(config, PreparedData.open(Run.open(old).data_path), old, init_from=f"{base}:last")
    assert Run.open(old).checkpoints()[-1].step == 6
    out = tmp_path / "out"
    export(Run.open(old), out, format="safetensors")
    assert named(out, words=("telling", str(project.parents[1]))) == []
    manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["command"] == ["mtkit", "train", "--init-from", "base"]
    assert manifest["started_from"]["run"] == "base"
    with pytest.raises(MtkitError, match="there is no such prepared folder"):
        PreparedData.open(Run.open(out).data_path)
