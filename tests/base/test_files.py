"""Writing files whole, JSON that is checked when it is read, and locks."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import field
from pathlib import Path
from typing import Any, Literal
from unittest.mock import Mock

import pytest
from support.command_line import full_disk
from support.errors import message_of

from mtkit.base import files
from mtkit.base.errors import MtkitError
from mtkit.base.folders import new_folder
from mtkit.base.models import Natural


class Thing(files.Record):
    kind: Literal["thing"] = "thing"
    count: Natural
    share: float = 0.5
    names: list[files.FileName] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)


class Other(files.Record):
    kind: Literal["other"] = "other"


def read(path: Path) -> Thing:
    return files.read_record(path, Thing, advice="do it again")


def refused(path: Path) -> str:
    error = message_of(read, path)
    assert str(path.parent) in error
    return error


@pytest.mark.parametrize(
    "thing",
    [
        Thing(count=3),
        Thing(count=0, share=1e-7, names=["a", "ü", "\udcff\n"], more={"x": None, "y": [1, "é"]}),
        Thing(count=1, share=float("inf")),
    ],
)
def test_a_record_comes_back_as_it_was_written(thing: Thing, tmp_path: Path):
    files.write_record(tmp_path / "file", thing)
    assert read(tmp_path / "file") == thing
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_record_is_readable_json_with_its_checksum(tmp_path: Path):
    files.write_record(tmp_path / "file", Thing(count=3, names=["ü"]))
    assert '"ü"' in (tmp_path / "file").read_text(encoding="utf-8")
    content = json.loads((tmp_path / "file").read_text(encoding="utf-8"))
    # printf '{"count":3,"names":["\\u00fc"]}' | sha256sum
    assert content == {
        "count": 3,
        "names": ["ü"],
        "checksum": "952b4a0c9b175c2e1aff52998725fcd4dfb1fac9479a71f7e2f8bcdc8fba81fc",
    }


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff", b"[]", b"{}", b"null", b"3", b"[" * 100_000, b'{"count": ' + b"9" * 5000],
)
def test_a_file_that_is_not_such_json_is_refused_in_one_line(content: bytes, tmp_path: Path):
    (tmp_path / "file").write_bytes(content)
    assert "do it again" in refused(tmp_path / "file")


def test_each_changed_byte_is_noticed(tmp_path: Path):
    path = tmp_path / "file"
    thing = Thing(count=31, share=0.25, names=["one"])
    files.write_record(path, thing)
    content = path.read_bytes()
    unnoticed = []
    for place in range(len(content)):
        for byte in (content[place] ^ 1, ord("7"), ord('"')):
            changed = content[:place] + bytes([byte]) + content[place + 1 :]
            path.write_bytes(changed)
            try:
                assert read(path) == thing
                unnoticed.append(changed)
            except MtkitError:
                pass
    # What is left has the same meaning: nothing but white space and what was there was changed.
    assert all(json.loads(changed) == json.loads(content) for changed in unnoticed)


def test_a_file_of_another_kind_of_folder_is_named(tmp_path: Path):
    files.write_record(tmp_path / "file", Other(kind="other"))
    assert f"{tmp_path}: is a other, not a thing" in refused(tmp_path / "file")


def test_a_record_of_another_version_names_the_key(tmp_path: Path):
    class Newer(Thing):
        extra: int = 0

    files.write_record(tmp_path / "file", Newer(count=1, extra=2))
    assert "another version of mtkit (extra:" in refused(tmp_path / "file")


def test_the_error_of_a_write_that_fails_names_the_file_which_stays_as_it_was(tmp_path: Path):
    files.write_whole(tmp_path / "file", "old")
    with full_disk(0), pytest.raises(OSError, match="File too large") as caught:
        files.write_whole(tmp_path / "file", "new")
    assert caught.value.filename == str(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]
    with pytest.raises(FileNotFoundError) as missing:
        files.write_whole(tmp_path / "no" / "file", "new")
    assert missing.value.filename == str(tmp_path / "no" / "file")


def test_names_that_are_not_utf8_can_be_written_as_json():
    assert json.loads(files.json_text(["\udcff", "ü"])) == ["\udcff", "ü"]
    assert files.json_text(["ü"]) == '["ü"]'


HOLD = """
import sys, time
from pathlib import Path
from mtkit.base.files import lock
with lock(Path(sys.argv[1]), what=Path("x"), doing="used"):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_lock_names_its_holder_and_ends_with_it_even_if_that_is_killed(tmp_path: Path):
    path = tmp_path / ".lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, path], stdout=subprocess.PIPE)
    assert holder.stdout.readline() == b"held\n"
    with (
        pytest.raises(MtkitError, match=rf"^x: is being used by process {holder.pid} on \S+ s"),
        files.lock(path, what=Path("x"), doing="used"),
    ):
        pytest.fail("it was held twice")
    holder.send_signal(signal.SIGKILL)
    holder.wait(timeout=600)
    holder.stdout.close()
    with files.lock(path, what=Path("x"), doing="used"):
        assert path.exists()
    assert not path.exists()


def test_a_lock_can_be_taken_again_and_again_by_one_process(tmp_path: Path):
    for _ in range(3):
        with (
            files.lock(tmp_path / ".lock", what=Path("x"), doing="used"),
            pytest.raises(MtkitError),
            files.lock(tmp_path / ".lock", what=Path("x"), doing="used"),
        ):
            pytest.fail("it was held twice")
    assert list(tmp_path.iterdir()) == []


def test_two_writers_of_a_file_do_not_mix(tmp_path: Path):
    path = tmp_path / "file"

    def parts(text):
        yield text
        if text == "first ":
            files.write_whole(path, parts("second "))
            assert path.read_text() == "second second "
        yield text

    files.write_whole(path, parts("first "))
    assert path.read_text() == "first first "
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("name", ["n" * 255, "語" * 85], ids=["ascii", "cjk"])
def test_a_file_may_have_the_longest_name(name: str, tmp_path: Path):
    files.write_whole(tmp_path / name, "text")
    assert os.listdir(tmp_path) == [name]


def test_a_new_folder_replaces_a_link_again_and_again(tmp_path: Path):
    real, out = tmp_path / "real", tmp_path / "out"
    real.mkdir()
    (real / "file").touch()
    out.symlink_to(real)
    for text in ("one", "two"):
        with new_folder(out) as folder:
            (folder / "file").write_text(text)
    assert (out / "file").read_text() == "two"
    # What the link named stays, and nothing else is left.
    assert (real / "file").read_text() == ""
    assert sorted(tmp_path.iterdir()) == [out, real]


def test_an_error_in_a_new_folder_names_the_folder_and_not_its_hidden_name(tmp_path: Path):
    def by_library(file):
        raise MtkitError(f"{file}: Disk quota exceeded")

    out = tmp_path / "out"
    for write, reason in ((Path.read_text, "No such file"), (by_library, "Disk quota exceeded")):
        with pytest.raises(MtkitError, match=f"^{out}/model: {reason}"), new_folder(out) as folder:
            write(folder / "model")
    with (
        full_disk(),
        pytest.raises(MtkitError, match=f"^{out}(/model)?: File too large"),
        new_folder(out) as folder,
    ):
        files.write_whole(folder / "model", "x" * 1000)
    assert os.listdir(tmp_path) == []


def test_a_lock_in_a_folder_that_is_not_there_is_one_line(tmp_path: Path):
    with (
        pytest.raises(MtkitError, match="No such file"),
        files.lock(tmp_path / "nowhere" / ".lock", what=Path("x"), doing="used"),
    ):
        pytest.fail("it was held")


def test_without_locks_in_the_file_system_a_warning_is_given(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("fcntl.flock", Mock(side_effect=OSError(95, "Operation not supported")))
    with files.lock(tmp_path / ".lock", what=Path("x"), doing="used"):
        assert "has no locks" in caplog.text


def test_the_hidden_folder_may_be_a_link_to_another_disk(tmp_path: Path):
    elsewhere, out = tmp_path / "elsewhere", tmp_path / "out"
    elsewhere.mkdir()
    (elsewhere / "old").touch()
    (tmp_path / ".out.partial").symlink_to(elsewhere)
    with new_folder(out) as folder:
        (folder / "new").touch()
    assert os.listdir(out) == os.listdir(elsewhere) == ["new"]


def test_a_file_that_is_replaced_keeps_its_mode(tmp_path: Path):
    path = tmp_path / "private"
    path.touch(0o600)
    files.write_whole(path, "new")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o600)
