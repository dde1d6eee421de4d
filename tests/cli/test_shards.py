"""`--shard I/N` of translate and align: the parts of a file, which together are the whole."""

import gzip
import re
from collections.abc import Iterator
from unittest.mock import Mock

import pytest
from conftest import slow
from support.command_line import Place

# Blank lines, a line that is cut, one that is copied, and no \n at the end.
LINES = ["one two", "", "three " * 40, "nine\u2028two", "...", " ", "two", "one nine three"] * 2
TEXT = "\n".join(LINES)


@pytest.fixture(autouse=True)
def _windows_are_short(monkeypatch) -> None:
    monkeypatch.setattr("mtkit.translate.reading.WINDOW_LINES", 3)


@pytest.fixture
def source(place, untrained) -> Iterator[list[str]]:
    """The command for a file, with a model whose output is another for every line."""
    place.write("in.txt", TEXT)
    return ["-q", "translate", "--run", str(untrained.path), "--device=cpu", "--input=in.txt"]


def joined(place: Place, command: list[str], count: int) -> tuple[str, list[str]]:
    """The outputs of all parts, and the warnings of each."""
    parts = [place.mtkit(*command, f"--shard={i}/{count}") for i in range(1, count + 1)]
    assert {part.status for part in parts} == {0}
    return "".join(part.out for part in parts), [part.err for part in parts]


@pytest.mark.parametrize("count", [1, 3, slow(7), 20])
@pytest.mark.parametrize(
    "options",
    [(), ("--sample", "--seed=3"), slow(("--mbr-samples=3", "--nbest=1")), ("--alignments",)],
    ids=" ".join,
)
def test_the_joined_parts_are_the_whole(options, count, place, source):
    whole = place.done(*source, *options)
    assert whole.out.count("\n") == len(LINES)
    assert joined(place, [*source, *options], count)[0] == whole.out


@pytest.mark.parametrize("options", [(), ("--json",)], ids=" ".join)
def test_the_joined_parts_of_an_alignment_are_the_whole(options, place, source):
    place.write("out.txt", "\n".join(LINES[::-1]))
    command = ["-q", "align", "in.txt", "out.txt", *source[2:-1], *options]
    whole = place.mtkit(*command)
    assert (whole.status, whole.out.count("\n")) == (0, len(LINES))
    # The last digit of a probability depends on the batch, and so on the parts.
    probability = re.compile(r"\d\.\d+(?:e-\d+)?")
    expected = [float(number) for number in probability.findall(whole.out)]
    for count in (1, 3, 20):
        together = joined(place, command, count)[0]
        assert probability.sub("", together) == probability.sub("", whole.out)
        numbers = [float(number) for number in probability.findall(together)]
        assert numbers == pytest.approx(expected, abs=1e-5)
    error = place.refused("align", "-", "out.txt", *source[2:-1], "--shard=1/2")
    assert "--shard requires SRC, and a file there" in error


@pytest.mark.parametrize("text", ["", "one\n"])
def test_parts_without_lines_are_empty(text, place, source):
    place.write("in.txt", text)
    assert joined(place, source, 3)[0] == place.mtkit(*source).out


def test_every_part_has_a_file_of_its_own_that_can_be_compressed(place, source):
    whole = place.mtkit(*source).out
    for i in (1, 2, 3):
        outcome = place.mtkit(*source[1:], f"--shard={i}/3", f"--output=out.{i}.gz")
        assert f"wrote out.{i}.gz, for {[5, 5, 6][i - 1]} lines\n" in outcome.err
    parts = b"".join((place.folder / f"out.{i}.gz").read_bytes() for i in (1, 2, 3))
    assert gzip.decompress(parts).decode() == whole


def test_numbers_in_rows_and_warnings_are_those_of_the_whole_file(place, source):
    place.write("in.txt", TEXT + "\n" + "one " * 3000)
    whole = place.mtkit(*source, "--nbest=2", "--max-length=5")
    rows, warnings = joined(place, [*source, "--nbest=2", "--max-length=5"], 3)
    numbers = [row.split("\t")[0] for row in rows.split("\n")[:-1]]
    assert numbers == [row.split("\t")[0] for row in whole.out.split("\n")[:-1]]
    cut = re.compile("warning: (line .* cut from .*)")
    assert cut.findall("".join(warnings)) == cut.findall(whole.err)
    assert "(lines 3, 11, 17)" in whole.err
    assert "(line 17)" in warnings[-1]


def test_forced_beginnings_are_those_of_the_lines(place, source):
    place.write("prefixes", "".join(f"{'eins zwei'[: i % 5]}\n" for i in range(len(LINES))))
    command = [*source, "--target-prefix", "prefixes"]
    assert joined(place, command, 3)[0] == place.mtkit(*command).out
    place.write("prefixes", "\n" * (len(LINES) + 1))
    assert "in.txt: has no line 17" in place.mtkit(*command, "--shard=3/3").err


@pytest.mark.parametrize("value", ["0/3", "4/3", "1", "-1/2", "1/2/3", ""])
def test_a_part_that_is_none_is_refused(value, place, source):
    outcome = place.mtkit(*source, f"--shard={value}")
    assert "expected I/N with I from 1 to N, as in 2/8" in outcome.error
    assert outcome.status == 2


def test_a_part_needs_a_file_of_lines(place, source):
    for command in (source[:-1], [*source[:-1], "--input=-"], [*source[:-1], "--input=/dev/null"]):
        assert "--shard requires --input, and a file" in place.refused(*command, "--shard=1/2")
    error = place.refused(*source, "--shard=1/2", "--format=html")
    assert "--shard cannot be combined with --format html" in error
    place.write("in.txt", b"one\ntwo\n\xff\n")
    assert "in.txt, line 3: not UTF-8" in place.mtkit(*source, "--shard=2/2").err
    assert "nowhere" in place.refused(*source[:-1], "--input=nowhere", "--shard=1/2")


def test_another_part_is_not_mixed_in(place, source):
    parts = place.folder / ".out.parts"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mtkit.cli.progress.Progress.finish", Mock(side_effect=KeyboardInterrupt))
        outcome = place.mtkit(*source, "--shard=1/2", "--output=out")
    assert outcome.status == 130
    assert len(list(parts.glob("0*"))) == 1
    error = place.refused(*source, "--shard=2/2", "--output=out")
    assert "was started with --shard 1/2, now with --shard 2/2" in error
    assert place.mtkit(*source, "--shard=1/2", "--output=out").status == 0
    assert (place.folder / "out").read_text().count("\n") == len(LINES) // 2


@pytest.mark.parametrize("command", ["translate", "align a b", "inspect one --json"])
def test_several_processes_of_torchrun_are_refused(command, place, monkeypatch):
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    error = place.refused(*command.split())
    assert f"mtkit {command.split()[0]} cannot be combined with torchrun" in error
