import gzip
import os
import shutil

import pytest
import torch
from support.command_line import Place, full_disk


def test_translate_prints_one_line_for_each_line_and_nothing_else(trained: Place):
    text = "\ufeffone two\n\n   \nthree\u2028four\nfive\x0bsix\r\nlast without an end"
    outcome = trained.done("translate", stdin=text.encode())
    lines = outcome.out.split("\n")
    assert len(lines) == 7
    assert (lines[1], lines[2], lines[6]) == ("", "", "")
    assert "runs/tiny" in outcome.err
    assert all(line.startswith("mtkit: ") for line in outcome.err.splitlines())


def test_what_was_written_is_said_and_whether_it_replaced_a_file(trained: Place):
    source = trained.write("in.txt", "one two\n\nthree\n")
    command = ["translate", "--input", source, "--output", "out.txt", "--device", "cpu"]
    for end in ("", "; the file that was there is replaced"):
        assert trained.mtkit(*command).err.endswith(f"mtkit: wrote out.txt, for 3 lines{end}\n")


def test_a_run_by_default_that_is_not_finished_is_called_so(trained: Place):
    assert "still training" not in trained.mtkit("translate", "--device", "cpu", stdin=b"one\n").err
    config = trained.folder / "runs" / "tiny" / "config.yaml"
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace("max_steps: 4", "max_steps: 1500"), encoding="utf-8")
    outcome = trained.mtkit("translate", "--device", "cpu", stdin=b"one\n")
    said = (
        "mtkit: runs/tiny: the newest run; it is still training, or was stopped, at step 4 of 1500"
    )
    assert said in outcome.err.splitlines()
    # Asked for by its name, it is used without a word.
    outcome = trained.mtkit("translate", "--run", "runs/tiny", "--device", "cpu", stdin=b"one\n")
    assert "still training" not in outcome.err


@pytest.mark.parametrize("command", ["translate", "score"])
def test_no_run_at_all_says_how_to_make_one(command: str, prepared: Place):
    assert "mtkit train" in prepared.refused(command, stdin=b"one\n")
    assert "nowhere" in prepared.refused(command, "--run", "nowhere", stdin=b"one\n")
    assert "data/tiny" in prepared.refused(command, "--run", "data/tiny", stdin=b"one\n")


@pytest.mark.parametrize("command", ["translate", "score"])
def test_a_run_without_a_checkpoint_is_refused(command: str, trained: Place):
    for checkpoint in (trained.folder / "runs" / "tiny" / "checkpoints").iterdir():
        shutil.rmtree(checkpoint)
    assert "no checkpoint" in trained.refused(command, stdin=b"one\n")
    assert "no checkpoint" in trained.refused(command, "--run", "runs/tiny", stdin=b"one\n")


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("average:99", "average:99: the run has 2 checkpoints to average"),
        ("7", "has no checkpoint of step 7, only of 2, 4"),
        ("newest", "'newest' is not a checkpoint; write last, best, average:N or a step"),
    ],
)
def test_a_checkpoint_that_is_not_there_is_refused(which: str, message: str, trained: Place):
    error = trained.refused("translate", f"--checkpoint={which}", "--device", "cpu", stdin=b"one\n")
    assert f"runs/tiny: {message}" in error


def test_a_stream_of_the_shell_is_translated_as_a_file(trained: Place):
    reading, writing = os.pipe()
    os.write(writing, b"one two\n")
    os.close(writing)
    trained.write("one.txt", "one two\n")
    outcomes = [trained.mtkit("translate", name) for name in (f"/dev/fd/{reading}", "one.txt")]
    os.close(reading)
    assert outcomes[0].out == outcomes[1].out != ""


def test_few_compiled_shapes_are_kept_unless_the_user_says_otherwise(trained, monkeypatch):
    monkeypatch.setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "7")
    monkeypatch.setenv("LRU_CACHE_CAPACITY", "7")
    monkeypatch.delenv("LRU_CACHE_CAPACITY")
    assert trained.mtkit("translate", stdin=b"one\n").status == 0
    assert os.environ["LRU_CACHE_CAPACITY"] == "64"
    assert os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == "7"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (gzip.compress(b"one two\n" * 100)[:-9], "Compressed file ended before the end-of-stream"),
        (
            gzip.compress(b"one\n") + b"more",
            "something follows the end of its compressed data; gzip -dc",
        ),
        (b"one two\n", "it is no .gz file"),
    ],
    ids=["cut", "longer", "plain"],
)
def test_a_compressed_input_that_is_damaged_is_one_line(content, reason, trained):
    trained.write("input.gz", content)
    outcome = trained.mtkit("-q", "translate", "--input", "input.gz")
    assert outcome.status == 1
    (line,) = outcome.err.splitlines()
    assert line.startswith(f"mtkit: error: input.gz: cannot be read: {reason}")


@pytest.mark.parametrize(
    "command",
    [
        ["translate", "--output", "circle"],
        ["export", "runs/tiny", "circle", "--format", "safetensors"],
    ],
    ids=["translate", "export"],
)
def test_an_output_that_is_a_link_to_itself_is_refused(command: list[str], trained: Place):
    (trained.folder / "circle").symlink_to("circle")
    assert "circle: Too many levels of symbolic links" in trained.refused(*command, stdin=b"one\n")
    assert (trained.folder / "circle").is_symlink()


@pytest.mark.parametrize(
    "command",
    [["translate"], ["inspect", "one two", "--json", "--device", "cpu"]],
    ids=lambda c: c[0],
)
def test_an_output_may_be_a_link_to_a_pipe(command: list[str], trained: Place):
    expected = trained.mtkit(*command, stdin=b"one two\n").out
    # As the shell gives it for >(COMMAND), and as /dev/stdout is before `| COMMAND`.
    reading, writing = os.pipe()
    outcome = trained.mtkit(*command, "--output", f"/dev/fd/{writing}", stdin=b"one two\n")
    os.close(writing)
    with open(reading) as pipe:
        assert pipe.read() == expected
    assert outcome.status == 0


@pytest.mark.parametrize("command", ["translate", "score", "train --config demo"])
def test_computing_on_a_gpu_that_is_not_there_is_refused(command, trained, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "--device cuda" in trained.refused(*command.split(), "--device=cuda", stdin=b"one\n")


def test_a_full_disk_is_one_line_and_leaves_nothing(trained: Place):
    trained.write("in.txt", "one two\n")
    command = ["translate", "--input", "in.txt", "--output", "out.txt"]
    with full_disk():
        assert "File too large" in trained.refused(*command)
