"""The cache of runs: what was kept is used while it holds, and changes no result."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest
from conftest import UNTRAINED, changed, copied_run, random_run
from support.command_line import full_disk
from support.program import python

from mtkit import native, run_cache
from mtkit.base.errors import MtkitError
from mtkit.config import dump_config, load_config
from mtkit.data import PreparedData
from mtkit.native.library import kernels
from mtkit.run_cache import CachedRun, open_run
from mtkit.run_folder import Run
from mtkit.translate import Translator

LINES = ["one two three", "seven eight", "nine nine four zero", ""]

needs_engine = pytest.mark.skipif(native.available() != "", reason="needs the native engine")
pytestmark = needs_engine


@pytest.fixture(scope="module")
def averaged(tiny_data: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with random weights in three checkpoints."""
    run = random_run(tmp_path_factory.mktemp("averaged") / "run", tiny_data, 5)
    weights = run.checkpoints()[0].load_weights()
    for step in (2, 3):
        scaled = {name: tensor * (1 + step / 10) for name, tensor in weights.items()}
        run.save(step, weights=scaled, optimizer={}, state={"valid_bleu": float(step == 2)})
    return run


@pytest.fixture(scope="module")
def another(tiny_data: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return random_run(tmp_path_factory.mktemp("another") / "run", tiny_data, 6)


@pytest.fixture
def path(averaged: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a copy of the run, with an empty cache."""
    monkeypatch.setenv("MTKIT_RUN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(run_cache, "SETTLED", -1e9)
    return copied_run(averaged, tmp_path / "run")


def outcome(run: Callable[[], Run], which: str | None = None, precision: str = "fp32") -> Any:
    """Texts, scores and checkpoints of a translator, or the message of its error."""
    try:
        opened = run()
        config = opened.config.decode.model_copy(update={"precision": precision})
        with Translator.load(
            opened, checkpoint=which, config=config, device="cpu", workers=1
        ) as translator:
            found = list(translator.translate_nbest(LINES, n_best=2))
            scored = [[(each.text, each.score, each.log_probs) for each in line] for line in found]
            return translator.checkpoint, scored
    except MtkitError as error:
        return str(error)


def started(path: Path, which: str | None = None, precision: str = "fp32") -> Any:
    return outcome(lambda: open_run(path, which), which, precision)


def plainly(path: Path, which: str | None = None, precision: str = "fp32") -> Any:
    """The same without the cache."""
    return outcome(lambda: Run.open(path), which, precision)


def is_kept(path: Path, which: str | None = None) -> bool:
    run = open_run(path, which)
    return isinstance(run, CachedRun) and run.selected is not None


def kept_files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache").iterdir())


def tick(path: Path) -> None:
    """Wait until a file that is changed gets another time than those of the run."""
    newest, probe = max(file.stat().st_ctime_ns for file in path.rglob("*")), path.parent / "probe"
    while not probe.exists() or probe.stat().st_ctime_ns <= newest:
        probe.write_bytes(b"")


def test_the_second_start_has_the_same_bits_and_reads_no_checkpoint(path: Path):
    first = started(path)
    assert first == plainly(path)
    assert first[0] == "the average of 3 checkpoints, steps 1 to 3"
    assert is_kept(path)
    assert started(path) == first


@pytest.mark.parametrize("which", ["last", "best", "2", "average:2", "average:3"])
def test_each_choice_of_checkpoints_has_its_own_entry(path: Path, which: str):
    started(path)
    assert not is_kept(path, which)
    for _ in range(2):
        assert started(path, which) == plainly(path, which)
    assert is_kept(path, which)


def test_a_choice_that_was_not_opened_is_read_from_the_run(path: Path):
    started(path)
    assert outcome(lambda: open_run(path), "2") == plainly(path, "2")


@pytest.mark.parametrize("precision", ["int8", "bf16"])
def test_an_entry_serves_every_precision(path: Path, precision: str):
    started(path)
    assert is_kept(path)
    assert started(path, precision=precision) == plainly(path, precision=precision)


def test_an_entry_serves_every_cpu(path: Path, monkeypatch: pytest.MonkeyPatch):
    assert kernels("fp32")
    started(path)
    monkeypatch.setenv("MTKIT_KERNELS", "plain")
    assert is_kept(path)
    assert started(path) == plainly(path)


def weights_of(path: Path, step: int) -> Path:
    return path / "checkpoints" / f"step-{step:08d}" / "model.safetensors"


def change_in_place(path: Path) -> None:
    """Other weights of the same size, at the same time of the file."""
    file, facts = weights_of(path, 3), weights_of(path, 3).stat()
    with file.open("r+b") as opened:
        opened.seek(-8, os.SEEK_END)
        opened.write(b"\0\0\x80\x3f" * 2)
    os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def cut(path: Path) -> None:
    os.truncate(weights_of(path, 2), 1000)


def delete_checkpoint(path: Path) -> None:
    shutil.rmtree(weights_of(path, 3).parent)


def delete_weights(path: Path) -> None:
    weights_of(path, 1).unlink()


def train_further(path: Path) -> None:
    run = Run.open(path)
    weights = {name: -tensor for name, tensor in run.checkpoints()[0].load_weights().items()}
    run.save(4, weights=weights, optimizer={}, state={})


def train_again(path: Path) -> None:
    weights = {
        name: -tensor for name, tensor in Run.open(path).checkpoints()[0].load_weights().items()
    }
    for saved in Run.open(path).checkpoints():
        Run.open(path).save(saved.step, weights=weights, optimizer={}, state={})


def begin_a_checkpoint(path: Path) -> None:
    (path / "checkpoints" / "step-00000009").mkdir()


def edit_decoding(path: Path) -> None:
    config = changed(load_config(str(path / "config.yaml")), "decode", average_checkpoints=2)
    (path / "config.yaml").write_text(dump_config(config), encoding="utf-8")


def edit_model(path: Path) -> None:
    config = changed(UNTRAINED, "model", n_heads=4)
    (path / "config.yaml").write_text(dump_config(config), encoding="utf-8")


def damage_manifest(path: Path) -> None:
    text = (path / "manifest.json").read_text(encoding="utf-8")
    (path / "manifest.json").write_text(text.replace('"en"', '"fr"', 1), encoding="utf-8")


def damage_tokenizer(path: Path) -> None:
    (path / "tokenizer.model").write_bytes(b"")


@pytest.mark.parametrize(
    "change",
    [
        *(change_in_place, cut, delete_checkpoint, delete_weights, train_further, train_again),
        *(begin_a_checkpoint, edit_decoding, edit_model, damage_manifest, damage_tokenizer),
    ],
)
def test_the_first_start_after_a_change_of_the_run_is_right(
    path: Path, change: Callable[[Path], None]
):
    before = started(path)
    assert is_kept(path)
    tick(path)
    change(path)
    expected = plainly(path)
    assert expected != before
    assert started(path) == started(path) == expected


def test_files_of_another_run_are_not_taken_for_those_of_this_one(path: Path, another: Run):
    started(path)
    tick(path)
    shutil.copy(another.checkpoints()[0].path / "model.safetensors", weights_of(path, 1))
    assert "damaged" in plainly(path)
    assert started(path) == plainly(path)


def test_a_moved_run_and_the_one_in_its_place_have_their_own_translations(
    path: Path, another: Run, tmp_path: Path
):
    before = started(path)
    moved = path.rename(tmp_path / "moved")
    copied_run(another, path)
    assert not is_kept(moved)
    assert started(moved) == before
    assert started(path) == plainly(path) != before


def test_a_run_that_was_changed_a_moment_ago_is_not_kept(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(run_cache, "SETTLED", 1e9)
    assert started(path) == plainly(path)
    assert not (tmp_path / "cache").exists()


def test_a_run_that_is_changed_while_it_is_read_is_not_kept(path: Path):
    run = open_run(path)
    tick(path)
    edit_decoding(path)
    outcome(lambda: run)
    assert not is_kept(path)
    assert started(path) == plainly(path)


def test_an_entry_of_another_version_of_mtkit_is_not_used(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    (tmp_path / "version" / "base").mkdir(parents=True)
    (tmp_path / "version" / "config.py").write_bytes(b"")
    started(path)
    monkeypatch.setattr(run_cache, "__file__", str(tmp_path / "version" / "run_cache.py"))
    assert not is_kept(path)
    assert started(path) == plainly(path)
    assert is_kept(path)


def flip_each(size: int) -> Iterator[int]:
    yield from {0, 40, 70, size // 3, size // 2, size - 1}


@pytest.mark.parametrize("kind", [".mtkit-run", ".mtkit-average"])
def test_a_damaged_entry_is_not_used(path: Path, tmp_path: Path, kind: str):
    expected = started(path)
    (file,) = (file for file in kept_files(tmp_path) if file.suffix == kind)
    whole = file.read_bytes()
    for place in flip_each(len(whole)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert not is_kept(path)
    for damaged in (b"", whole[:-1], whole[: len(whole) // 2], whole + b"\0", b"\n{}"):
        file.write_bytes(damaged)
        assert not is_kept(path)
    file.unlink()
    assert not is_kept(path)
    file.mkdir()
    assert not is_kept(path)
    assert started(path) == expected
    file.rmdir()
    assert started(path) == expected
    assert is_kept(path)


def test_the_only_checkpoint_is_compared_with_its_checksum(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    started(path, "last")
    entry = run_cache._entry(path, "last")
    monkeypatch.setattr(run_cache, "_entry", lambda *_: entry)
    assert is_kept(path, "last")
    change_in_place(path)
    assert not is_kept(path, "last")
    assert started(path, "last") == plainly(path, "last")


@pytest.mark.parametrize("place", ["", "relative", "file/under", "/proc/nowhere", "/dev/null"])
def test_without_a_folder_for_the_cache_everything_works(
    path: Path, place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    (tmp_path / "file").write_bytes(b"")
    given = str(tmp_path / place) if place.startswith("file") else place
    monkeypatch.setenv("MTKIT_RUN_CACHE", given)
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert started(path) == plainly(path)
        assert not is_kept(path)
    assert not (tmp_path / "relative").exists()


def test_without_a_home_everything_works(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    for name in ("MTKIT_RUN_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda text: text)
    monkeypatch.chdir(tmp_path)
    assert started(path) == plainly(path)
    assert not (tmp_path / "~").exists()


def test_on_a_full_disk_nothing_is_kept_and_everything_works(path: Path, tmp_path: Path):
    with full_disk():
        assert started(path) == plainly(path)
    assert not kept_files(tmp_path)


def test_a_folder_that_may_only_be_read_serves_what_it_has(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    expected = started(path)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "read-only")

    monkeypatch.setattr(os, "utime", refuse)
    monkeypatch.setattr(run_cache, "replacing", refuse)
    assert is_kept(path)
    assert started(path) == expected
    assert started(path, "average:2") == plainly(path, "average:2")


def test_two_that_start_at_once_find_the_same(path: Path):
    expected, both = plainly(path), Barrier(2)
    results: list[Any] = []

    def start() -> None:
        run = open_run(path)
        both.wait()
        results.append(outcome(lambda: run))

    threads = [Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected, expected]
    assert is_kept(path)


def test_what_is_deleted_after_it_was_opened_is_still_read(path: Path, tmp_path: Path):
    expected = started(path)
    run = open_run(path)
    shutil.rmtree(tmp_path / "cache")
    assert outcome(lambda: run) == expected


def test_of_a_run_the_oldest_entries_are_deleted_and_an_average_beyond_the_limit_is_not_kept(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    started(path)
    size = sum(file.stat().st_size for file in kept_files(tmp_path))
    for file in kept_files(tmp_path):
        os.utime(file, (1e9, 1e9))
    monkeypatch.setattr(run_cache, "MAX_AGE", 1e12)
    monkeypatch.setattr(run_cache, "MAX_BYTES", size + 10)
    started(path, "average:2")
    assert is_kept(path, "average:2")
    assert not is_kept(path)
    assert sum(file.stat().st_size for file in kept_files(tmp_path)) <= size + 10
    monkeypatch.setattr(run_cache, "MAX_BYTES", 1000)
    assert started(path) == plainly(path)
    assert not is_kept(path)


def test_an_entry_that_was_not_used_for_long_is_deleted_and_no_other_file(
    path: Path, another: Run, tmp_path: Path
):
    started(path)
    old = kept_files(tmp_path)
    own = tmp_path / "cache" / "notes-of-mine.txt"
    own.write_bytes(b"")
    for file in (own, *old):
        os.utime(file, (1e9, 1e9))
    started(another.path)
    assert own in kept_files(tmp_path)
    assert not {*old} & {*kept_files(tmp_path)}


def test_pytorch_gets_the_checkpoints_that_the_engine_has(path: Path):
    started(path)
    kept, plain = (
        Translator.load(run, device="cpu", workers=1) for run in (open_run(path), Run.open(path))
    )
    for name, tensor in plain.model.state_dict().items():
        assert tensor.equal(kept.model.state_dict()[name])


def test_neither_pydantic_nor_pytorch_is_loaded_when_the_cache_answers(path: Path, tmp_path: Path):
    program = f"""
import sys
from mtkit import run_cache
run_cache.SETTLED = -1e9
sys.argv = ["mtkit", "-q", "translate", "--device", "cpu", "--run", {str(path)!r}]
from mtkit.cli import main
try:
    main()
except SystemExit as end:
    print(end.code, *sorted({{"pydantic", "torch", "ruamel.yaml"}} & {{*sys.modules}}))
"""
    first, second = (python("-c", program, cwd=tmp_path, stdin="one two\n") for _ in range(2))
    text, ended, _ = first.stdout.split("\n")
    assert first.stderr == second.stderr
    assert ended == "0 pydantic ruamel.yaml"
    assert second.stdout == f"{text}\n0\n"
