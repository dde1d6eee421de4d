"""Lines of text and the prepared folder."""

import bz2
import contextlib
import gzip
import hashlib
import json
import lzma
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.errors import message_of
from support.runs import contents

from mtkit.base.errors import MtkitError
from mtkit.base.text import decode_lines, read_lines, zstd
from mtkit.data import PreparedData, find_data
from mtkit.prepare.writer import PreparedWriter, create_prepared
from mtkit.tokenizer import Vocabularies

PAD, BOS, EOS = 0, 1, 2


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\nb\n", ["a", "b"]),
        (b"a\nb", ["a", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\r\nb\r", ["a", "b"]),
        (b"a\rb\n", ["a\rb"]),
        (b"\xef\xbb\xbfa\nb\n", ["a", "b"]),
        (b"a\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        ("a\u2028b\u2029c\n".encode(), ["a\u2028b\u2029c"]),
        (b"a\x0bb\x0cc\x1cd\x1de\x1ef\n", ["a\x0bb\x0cc\x1cd\x1de\x1ef"]),
        (b"a\0b\n\0\n", ["a\0b", "\0"]),
        (b"  a  \t\n", ["  a  \t"]),
    ],
)
def test_a_line_ends_at_a_newline_and_nowhere_else(content, lines, tmp_path):
    file = tmp_path / "text"
    file.write_bytes(content)
    assert list(read_lines(file)) == lines


def test_text_with_returns_alone_is_one_line_with_a_warning(tmp_path, caplog):
    old = tmp_path / "old.txt"
    old.write_bytes(b"one\rtwo\rthree\r")
    assert list(read_lines(old)) == ["one\rtwo\rthree"]
    (record,) = caplog.records
    assert record.getMessage() == (
        f"{old}: lines end at \\n, and it has only \\r; "
        "convert it with tr '\\r' '\\n' for example; it is read as one line"
    )


@pytest.mark.parametrize(
    "text", [b"one\r", b"one\rtwo", b"a\rb\rc\n", b"a\r\nb\r\n", b"a\nb\r\r", b""]
)
def test_other_returns_are_not_warned_of(text, tmp_path, caplog):
    (tmp_path / "text").write_bytes(text)
    list(read_lines(tmp_path / "text"))
    assert caplog.records == []


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r"))))
def test_lines_that_are_written_come_back(lines: list[str]):
    stream = [f"{line}\n".encode() for line in lines]
    if lines:
        # A first line may itself begin with what is a mark at the start of a file.
        lines = [lines[0].removeprefix("\ufeff"), *lines[1:]]
    assert list(decode_lines(stream, name="text")) == lines


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd.compress,
}
TEXT = "erste\nzweite\u2028immer noch\n\ndritte".encode()
LINES = ["erste", "zweite\u2028immer noch", "", "dritte"]
# Too much for one buffer, and no two lines alike.
LONG = "".join(f"{hashlib.sha256(str(i).encode()).hexdigest()}\n" for i in range(8000)).encode()


@pytest.mark.parametrize("suffix", [*COMPRESSORS, ".GZ", ".Gz", ".bZ2", ".XZ", ".Zst"])
def test_a_compressed_file_has_the_lines_of_the_plain_one(suffix: str, tmp_path: Path):
    file = tmp_path / f"text{suffix}"
    file.write_bytes(COMPRESSORS[suffix.lower()](TEXT))
    assert list(read_lines(file)) == LINES


@pytest.mark.parametrize("content", [TEXT, b"", LONG])
@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_a_compressed_file_named_as_a_plain_one_is_refused(suffix, content, tmp_path):
    file = tmp_path / "text.txt"
    file.write_bytes(COMPRESSORS[suffix](content))
    with pytest.raises(MtkitError, match=rf"text\.txt: is compressed by \w+; name it \{suffix}$"):
        list(read_lines(file))


@pytest.mark.parametrize("own", COMPRESSORS)
@pytest.mark.parametrize("named", COMPRESSORS)
def test_a_file_named_as_of_another_compression_is_refused_with_its_own(own, named, tmp_path):
    file = tmp_path / f"text{named}"
    file.write_bytes(COMPRESSORS[own](TEXT))
    message = rf"{named}: cannot be read: it is compressed by \w+; name it \{own}$"
    with pytest.raises(MtkitError, match=message) if own != named else contextlib.nullcontext():
        list(read_lines(file))


@pytest.mark.parametrize("suffix", COMPRESSORS)
@pytest.mark.parametrize("harm", [0.99, 0.5, 0.001, "another content", "a damaged byte"])
def test_a_truncated_damaged_or_wrongly_named_file_is_an_error_that_names_it_and_says_why(
    suffix, harm, tmp_path
):
    file = tmp_path / f"text{suffix}"
    checked = {zstd.CompressionParameter.checksum_flag: 1}
    whole = zstd.compress(LONG, options=checked) if suffix == ".zst" else COMPRESSORS[suffix](LONG)
    if isinstance(harm, float):
        file.write_bytes(whole[: int(len(whole) * harm)])
    elif harm == "another content":
        file.write_bytes(b"plain text, not compressed at all\n" * 10)
    else:
        middle = len(whole) // 2
        file.write_bytes(whole[:middle] + bytes([whole[middle] ^ 0x55]) + whole[middle + 1 :])
    error = message_of(lambda: list(read_lines(file)))
    assert error.startswith(f"{file}: ")
    assert len(error.rpartition(": ")[2]) > 5


@pytest.mark.parametrize(
    ("content", "line", "byte"),
    [
        (b"good\ncaf\xe9\n", 2, "0xe9"),
        (b"\xffgo\n", 1, "0xff"),
        (b"a\n" * 999 + b"\xed\xa0\x80\n", 1000, "0xed"),
        (b"cut short \xc3", 1, "0xc3"),
    ],
)
def test_text_that_is_not_utf8_is_an_error_that_names_file_line_and_byte(
    content, line, byte, tmp_path
):
    file = tmp_path / "text"
    file.write_bytes(content)
    error = message_of(lambda: list(read_lines(file)))
    assert f"{file}, line {line}:" in error
    assert byte in error


@pytest.mark.parametrize("suffix", ["", *COMPRESSORS])
def test_a_missing_file_is_an_error_that_names_it(suffix: str, tmp_path: Path):
    with pytest.raises(MtkitError, match=f"nowhere\\{suffix}: No such file" if suffix else "No su"):
        list(read_lines(tmp_path / f"nowhere{suffix}"))


def test_a_folder_is_not_a_text_file(tmp_path: Path):
    with pytest.raises(MtkitError, match="directory"):
        list(read_lines(tmp_path))


class FakeTokenizer:
    """A file, and a number of pieces; no language tags."""

    scheme = None

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def save(self, path: Path) -> None:
        path.write_bytes(b"a model")


Ids = tuple[list[int], list[int]]
PAIRS: list[Ids] = [([10, 11], [20]), ([12], [21, 22, 23]), ([13, 14, 15], [24, 25])]


def as_bytes(pairs: Iterable[Ids], writer: PreparedWriter) -> list[list[bytes]]:
    """Both sides as a writer takes them: with their ends, in bytes."""
    both = list(pairs)
    return [
        [np.array([*pair[side], EOS], writer.token_type).tobytes() for pair in both]
        for side in range(2)
    ]


def write(path: Path, pairs: Iterable[Ids] = PAIRS, *, force: bool = False) -> PreparedData:
    with create_prepared(path, force=force) as writer:
        writer.add_tokenizers(Vocabularies.joint(FakeTokenizer(300)))  # type: ignore[arg-type]
        writer.add_pairs("train", *as_bytes(pairs, writer))
        writer.add_pairs("valid", *as_bytes(PAIRS[:1], writer))
        writer.add_text("valid", ["a\u2028b", ""], ["c", " d "])
        writer.drop("some.en", 7, "too long")
        writer.describe(src_lang="en", tgt_lang="de")
    return PreparedData.open(path)


def test_pairs_come_back_as_they_were_written_with_their_ends(tmp_path: Path):
    data = write(tmp_path / "data")
    pairs = data.pairs("train")
    assert len(pairs) == 3
    assert [(pairs.src[i], pairs.tgt[i]) for i in range(3)] == [
        ([10, 11, EOS], [20, EOS]),
        ([12, EOS], [21, 22, 23, EOS]),
        ([13, 14, 15, EOS], [24, 25, EOS]),
    ]
    assert pairs.src.lengths.tolist() == [3, 2, 4]
    assert pairs.tgt.lengths.tolist() == [2, 4, 3]
    assert len(data.pairs("valid")) == 1


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_parts_are_the_sentences_in_order(size: int, tmp_path: Path):
    src = write(tmp_path / "data").pairs("train").src
    parts = [src.part(start, start + size) for start in range(0, 3, size)]
    assert [len(part) for part in parts] == [[1, 1, 1], [2, 1], [3], [3]][size - 1]
    sentences = [part[i] for part in parts for i in range(len(part))]
    assert sentences == [[*src, EOS] for src, _ in PAIRS]
    assert sum(part.counts(300).sum() for part in parts) == 9


@pytest.mark.parametrize(
    ("sizes", "width"),
    [
        *(((size, size), 2) for size in (300, 65_535, 65_536)),
        *(((size, size), 4) for size in (65_537, 100_000)),
        *(((300, 65_536), 2), ((65_536, 300), 2), ((300, 65_537), 4), ((65_537, 300), 4)),
    ],
)
def test_the_larger_of_two_vocabularies_decides_how_many_bytes_ids_take(sizes, width, tmp_path):
    with create_prepared(tmp_path / "data") as writer:
        writer.add_tokenizers(Vocabularies(*map(FakeTokenizer, sizes)))  # type: ignore[arg-type]
        for split in ("train", "valid"):
            writer.add_pairs(split, *as_bytes([([sizes[0] - 1], [sizes[1] - 1, 5])], writer))
    written = PreparedData.open(tmp_path / "data").pairs("train")
    assert (written.src[0], written.tgt[0]) == ([sizes[0] - 1, EOS], [sizes[1] - 1, 5, EOS])
    assert (tmp_path / "data" / "train.src.bin").stat().st_size == 2 * width
    assert (tmp_path / "data" / "train.tgt.bin").stat().st_size == 3 * width


def test_every_file_is_in_the_manifest_with_its_size_and_checksum(tmp_path: Path):
    files = contents(write(tmp_path / "data").path)
    manifest = json.loads(files.pop("manifest.json"))
    assert manifest["files"] == {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in files.items()
    }


def test_the_fingerprint_changes_with_the_text_and_not_with_the_name(tmp_path: Path):
    first = write(tmp_path / "a")
    other = write(tmp_path / "b", [*PAIRS[:2], ([13, 14, 15], [24, 26])])
    moved = Path(shutil.move(first.path, tmp_path / "elsewhere"))
    assert other.fingerprint != first.fingerprint
    assert PreparedData.open(moved).fingerprint == first.fingerprint


@pytest.mark.parametrize("error", [KeyboardInterrupt, MtkitError, ValueError, OSError(28, "full")])
def test_an_error_while_writing_leaves_nothing(error: BaseException, tmp_path: Path):
    def broken():
        yield PAIRS[0]
        raise error

    with pytest.raises((KeyboardInterrupt, MtkitError, ValueError)):
        write(tmp_path / "data", broken())
    assert list(tmp_path.iterdir()) == []


def test_force_replaces_the_folder_as_a_whole(tmp_path: Path):
    write(tmp_path / "data")
    (tmp_path / "data" / "stray").write_text("left by somebody")
    assert len(write(tmp_path / "data", PAIRS[:1], force=True).pairs("train")) == 1
    assert not (tmp_path / "data" / "stray").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_force_does_not_replace_what_was_never_prepared(tmp_path: Path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "letters.txt").write_text("dear")
    for place, words in ((home, "not a prepared folder"), (home / "letters.txt", "letters")):
        with pytest.raises(MtkitError, match=words):
            write(place, force=True)
    assert contents(home) == {"letters.txt": b"dear"}


def test_a_place_below_a_file_is_refused_before_any_work(tmp_path: Path):
    (tmp_path / "file").write_text("")
    worked = False
    with (
        pytest.raises(MtkitError, match="no file can be created in"),
        create_prepared(tmp_path / "file" / "below" / "data"),
    ):
        worked = True
    assert not worked


def test_opening_refuses_a_folder_that_is_not_prepared(tmp_path: Path):
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(MtkitError, match="mtkit prepare"):
            PreparedData.open(place)


@pytest.mark.parametrize("name", ["train.src.bin", "tokenizer.model", "valid.tgt.txt"])
def test_opening_refuses_a_folder_with_a_file_missing_or_cut_short(name: str, tmp_path: Path):
    path = write(tmp_path / "data").path
    (path / name).write_bytes((path / name).read_bytes()[:-1])
    with pytest.raises(MtkitError, match=f"{name}: "):
        PreparedData.open(path)
    (path / name).unlink()
    with pytest.raises(MtkitError, match=f"{name}: "):
        PreparedData.open(path)


@pytest.mark.parametrize("manifest", [b"", b"{", b"\xff", b"[]", b"{}", b'{"format": 99}', b"null"])
def test_opening_refuses_a_manifest_that_is_damaged_or_of_another_version(manifest, tmp_path):
    path = write(tmp_path / "data").path
    (path / "manifest.json").write_bytes(manifest)
    with pytest.raises(MtkitError, match="prepare again"):
        PreparedData.open(path)


def test_verifying_names_the_file_that_was_changed(tmp_path: Path):
    data = write(tmp_path / "data")
    data.verify()
    file = data.path / "train.tgt.bin"
    content = bytearray(file.read_bytes())
    content[0] ^= 1
    file.write_bytes(bytes(content))
    # Of the right size, so that only the checksum finds it.
    with pytest.raises(MtkitError, match=r"train\.tgt\.bin: changed"):
        PreparedData.open(data.path).verify()


def test_the_newest_of_several_folders_is_found(tmp_path: Path):
    for age, name in enumerate(["newest", "older", "oldest"]):
        os.utime(write(tmp_path / name).path / "manifest.json", ns=(0, 10**18 - age))
    (tmp_path / "not-prepared").mkdir()
    shutil.copytree(tmp_path / "newest", tmp_path / ".hidden.partial")
    assert find_data(tmp_path) == tmp_path / "newest"


def test_finding_nothing_says_what_to_do(tmp_path: Path):
    with pytest.raises(MtkitError, match="mtkit prepare demo-en-de"):
        find_data(tmp_path / "data")
