"""`mtkit translate` beyond lines of text: JSON, several runs, sentences, a person at a terminal."""

import fcntl
import json
import os
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from sentencepiece import SentencePieceProcessor
from support.command_line import Place
from support.forked import PIPE, Forked, run_mtkit

from mtkit.config import DecodeConfig, dump_config
from mtkit.native import available
from mtkit.run_folder import Run
from mtkit.translate import Translator, native_decoder, reading
from mtkit.translate.pytorch import decoder

RunTranslate = Callable[..., tuple[int, str, list[str]]]


@pytest.fixture
def run_translate(untrained, tmp_path, monkeypatch, capfd) -> RunTranslate:
    """Translates lines; returns status, standard output and the lines of standard error."""
    place = Place(tmp_path, monkeypatch, capfd)

    def run(*arguments, lines="one two three\n", run=untrained):
        source = place.write("in.txt", lines)
        command = ["-q", "translate", "--run", run.path, "--device", "cpu", "--input", source]
        outcome = place.mtkit(*command, *arguments)
        return outcome.status, outcome.out, outcome.err.splitlines()

    return run


def with_decode(run: Run, **settings: object) -> DecodeConfig:
    return run.config.decode.model_copy(update=settings)


# What the options do


@pytest.mark.parametrize("place", ["standard output", "a file"])
def test_json_is_an_object_for_each_line_that_holds_together(
    place, run_translate, untrained, tmp_path
):
    lines = ["one two three", "", "nine", " "]
    target = tmp_path / "out.jsonl"
    output = ["--output", target] if place == "a file" else []
    status, out, err = run_translate("--json", "--nbest", "2", *output, lines="\n".join(lines))
    assert (status, err) == (0, [])
    if output:
        assert out == ""
        out = target.read_text(encoding="utf-8")
    assert out.endswith("}\n")
    rows = [json.loads(line) for line in out.removesuffix("\n").split("\n")]
    expected = Translator.load(untrained, device="cpu").translate_nbest(lines, n_best=2)
    vocabulary = SentencePieceProcessor(model_proto=untrained.tokenizers()[1].model)
    assert [row["line"] for row in rows] == [1, 2, 3, 4]
    for row, wanted in zip(rows, expected, strict=True):
        assert [x["text"] for x in row["translations"]] == [x.text for x in wanted]
        assert row["seconds"] >= 0
        for ours, theirs in zip(row["translations"], wanted, strict=True):
            pieces = [piece for piece, _ in ours["tokens"]]
            log_probs = [log_prob for _, log_prob in ours["tokens"]]
            assert sum(log_probs) == pytest.approx(ours["log_prob"], abs=1e-5)
            assert ours["log_prob"] == pytest.approx(theirs.log_prob, abs=1e-5)
            assert ours["score"] == pytest.approx(theirs.score, abs=1e-5)
            # A blank line has no tokens at all.
            assert ours["finished"] == (not pieces or pieces[-1] == "</s>")
            text = vocabulary.decode_pieces([piece for piece in pieces if piece[1:] != "/s>"])
            text = text.translate({0x09: " ", 0x0A: " ", 0x0D: " "})
            if "\ufffd" in text:
                # SentencePiece has it for every byte that spells nothing; here it is left out.
                text = re.sub(" +", " ", text.replace("\ufffd", "")).strip(" ")
            assert ours["text"] == text
    assert rows[1]["translations"] == [
        {"text": "", "score": 0.0, "log_prob": 0.0, "finished": True, "tokens": []}
    ]


def test_options_reach_the_translator(run_translate, untrained, also_untrained, tmp_path):
    lines = "one two three\n\nNine. Eight!\n"
    several = [untrained, also_untrained]
    cases: list[tuple[list[str | Path], list[Run], DecodeConfig]] = [
        (
            ["--sample", "--temperature", "0.5", "--top-k", "9", "--top-p", "0.9", "--seed", "7"],
            [untrained],
            with_decode(untrained, sample=True, temperature=0.5, top_k=9, top_p=0.9, seed=7),
        ),
        (["--mbr-samples", "5"], [untrained], with_decode(untrained, mbr_samples=5)),
        (["--split-sentences"], [untrained], with_decode(untrained, split_sentences=True)),
        (["--run", also_untrained.path], several, with_decode(untrained)),
    ]
    seen = set()
    for number, (options, runs, config) in enumerate(cases):
        expected = Translator.load(runs, device="cpu", config=config)
        # Over a folder of parts and over a pipe.
        target = tmp_path / f"{number}.txt"
        output = ["--output", target] if number % 2 else []
        status, out, err = run_translate(*options, *output, lines=lines)
        assert (status, err) == (0, [])
        out = target.read_text("utf-8") if output else out
        assert out == "".join(f"{text}\n" for text in expected.translate(lines.splitlines()))
        assert out.split("\n")[1] == ""
        seen.add(out)
    assert len(seen) == len(cases)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--sample", "--temperature", "0"], ["--temperature", "a number above 0"]),
        (["--sample", "--temperature", "inf"], ["temperature", "finite number"]),
        (["--sample", "--top-p", "3"], ["--top-p", "above 0 and at most 1"]),
        (["--temperature", "0.5"], ["--temperature requires --sample or --mbr-samples"]),
        (["--sample", "--beam-size", "2"], ["--beam-size cannot be combined with --sample"]),
        (["--min-length", "5", "--max-length", "3"], ["max_length: 3 is less than min_length, 5"]),
        (["--input", "-", "--target-prefix", "-"], ["standard input (-) can be read once"]),
        (["--mbr-samples", "2", "--stop", "exact"], ["--stop cannot be combined with --mbr-sa"]),
    ],
)
@pytest.mark.parametrize("output", ["standard output", "a file"])
def test_what_makes_no_sense_is_refused_in_one_line_that_names_the_option(
    output, options, words, run_translate, tmp_path
):
    more = ["--output", tmp_path / "out.txt"] if output == "a file" else []
    status, out, err = run_translate(*options, *more)
    assert status in (1, 2)
    assert out == ""
    assert len(err) == 1
    assert err[0].startswith("mtkit: error: ")
    for word in words:
        assert word in err[0].replace(".0", "")
    # Nothing is left beside the output either.
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


@pytest.mark.parametrize(
    ("shorter", "longer"), [("prefix.txt", "in.txt"), ("in.txt", "prefix.txt")]
)
def test_as_many_prefixes_as_lines_are_needed(shorter, longer, run_translate, tmp_path):
    texts = {shorter: "one\n", longer: "one\ntwo\n"}
    prefixes = tmp_path / "prefix.txt"
    prefixes.write_text(texts["prefix.txt"], encoding="utf-8")
    status, out, err = run_translate("--target-prefix", prefixes, lines=texts["in.txt"])
    assert (status, len(out.splitlines())) == (1, 1)
    assert err == [
        f"mtkit: error: {tmp_path / shorter}: has no line 2, but {tmp_path / longer} has one"
    ]


def test_what_a_run_says_about_decoding_counts_as_the_options_do(
    run_translate, untrained, tmp_path
):
    own = untrained.config.decode.model_copy(update={"sample": True, "split_sentences": True})
    config = untrained.config.model_copy(update={"decode": own})
    folder = shutil.copytree(untrained.path, tmp_path.with_name("own") / "run")
    (folder / "config.yaml").write_text(dump_config(config), encoding="utf-8")
    run = Run.open(folder)
    status, out, err = run_translate("--temperature", "0.5", lines="One. Two.\n", run=run)
    assert (status, err) == (0, [])
    cooler = Translator.load(run, device="cpu", config=with_decode(run, temperature=0.5))
    assert out == f"{next(cooler.translate(['One. Two.']))}\n"
    status, _, err = run_translate("--no-sample", "--temperature", "0.5", run=run)
    assert status == 2
    assert "--temperature requires --sample" in err[0]


# A person at a terminal


def at_a_terminal(arguments: list[str]) -> None:
    """The program; its standard input becomes its terminal, whose Ctrl-C then reaches it."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    run_mtkit(arguments)


PATIENCE = 600.0
CTRL_C, CTRL_D = b"\x03", b"\x04"


@dataclass
class Person:
    """Someone at a terminal in which the program runs."""

    screen: int
    process: Forked

    def type(self, keys: bytes) -> None:
        os.write(self.screen, keys)

    def status_after(self, key: bytes) -> int:
        """Press a key that ends the program; its exit status.

        Ctrl-C is pressed again where nothing happens: Python misses an interrupt that comes
        between its prompt and the moment when it begins to wait.
        """
        tries = 100 if key == CTRL_C else 1
        for _ in range(tries):
            self.type(key)
            with suppress(subprocess.TimeoutExpired):
                return self.process.wait(PATIENCE / tries)
        raise AssertionError("the program did not end")

    def waits_for(self, text: str) -> str:
        """What appears until this does."""
        shown = read_until(self.screen, text.encode(), size=1)
        return shown.decode(errors="replace").replace("\r\n", "\n")


@contextmanager
def person(run: Run, *, into_a_pipe: bool = False) -> Iterator[Person]:
    """Someone who translates with a run, and who reads from the terminal or from a pipe."""
    screen, terminal = os.openpty()
    arguments = ["translate", "--run", str(run.path), "--device", "cpu"]
    try:
        with Forked(
            at_a_terminal,
            arguments,
            environment={"TERM": "dumb"},
            stdin=terminal,
            stdout=PIPE if into_a_pipe else terminal,
            stderr=PIPE,
        ) as process:
            try:
                yield Person(screen, process)
            finally:
                process.kill()
    finally:
        os.close(terminal)
        os.close(screen)


@pytest.mark.parametrize(("key", "status"), [(CTRL_D, 0), (CTRL_C, 130)])
def test_a_person_is_prompted_and_answered_until_ctrl_d_or_ctrl_c(key, status, untrained):
    lines = ["one two", "fünf", "", "nine"]
    answers = list(Translator.load(untrained, device="cpu").translate(lines))
    with person(untrained) as somebody:
        assert somebody.waits_for("en> ") == "en> "
        for line, answer in zip(lines, answers, strict=True):
            somebody.type(f"{line}\n".encode())
            assert somebody.waits_for("\nen> ").endswith(f"\n{answer}\nen> ")
        # What is not a text is answered too.
        somebody.type(b"\xff one\n")
        somebody.waits_for("\nen> ")
        assert somebody.status_after(key) == status
        assert somebody.process.stderr is not None
        notes = somebody.process.stderr.read().decode()
    assert "mtkit: translating what you type; end with Ctrl-D\n" in notes
    assert "rror" not in notes


def test_no_prompt_is_in_the_data_of_a_pipe(untrained):
    (answer,) = Translator.load(untrained, device="cpu").translate(["one two"])
    with person(untrained, into_a_pipe=True) as somebody:
        data, notes = somebody.process.stdout, somebody.process.stderr
        assert data is not None
        assert notes is not None
        somebody.type(b"one two\n")
        assert data.readline().decode() == f"{answer}\n"
        assert somebody.status_after(CTRL_C) == 130
        assert data.read() == b""
        assert notes.read().decode().splitlines()[-1] == "mtkit: interrupted"


def waiting_at(gate: Path, folder: Path, arguments: list[str]) -> None:
    """The run_mtkit, two lines at a time; each batch waits for a line at the gate."""
    # Whichever engine is installed.
    used = decoder.Torch if available() else native_decoder.Native
    finish = used.finish

    def wait(self, work):
        while True:
            with gate.open() as line:
                if line.readline():
                    return finish(self, work)

    reading.WINDOW_LINES = 2
    used.finish = wait  # type: ignore[method-assign]
    run_mtkit(arguments, folder)


@contextmanager
def slow(
    folder: Path, run: Run, *arguments: str, on_a_terminal: bool = False
) -> Iterator[tuple[Forked, int, Path]]:
    """A translation of six lines, two at a time, each two when a line comes through the gate.

    Gives the process, the screen of its standard error, and the gate.
    """
    gate = folder / "gate"
    gate.unlink(missing_ok=True)
    os.mkfifo(gate)
    (folder / "in.txt").write_text("one\ntwo\nthree\nfour\nfive\nsix\n")
    screen, terminal = os.openpty() if on_a_terminal else os.pipe()
    if on_a_terminal:
        # Rows and columns, or a bar has no room.
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = ["translate", "--run", str(run.path), "--device", "cpu", "--input", "in.txt"]
    with Forked(
        waiting_at,
        gate,
        folder,
        [*command, *arguments],
        environment={"TERM": "dumb"},
        stdout=PIPE,
        stderr=terminal,
    ) as process:
        os.close(terminal)
        try:
            yield process, screen, gate
        finally:
            process.kill()
            os.close(screen)


def read_until(screen: int, text: bytes, size: int = 1000) -> bytes:
    """What appears until this does."""
    shown = b""
    end = time.monotonic() + PATIENCE
    while text not in shown:
        ready, _, _ = select.select([screen], [], [], max(0, end - time.monotonic()))
        assert ready, shown
        try:
            some = os.read(screen, size)
        except OSError:  # as a terminal ends
            some = b""
        assert some, shown
        shown += some
    return shown


def let_through(gate: Path, times: int) -> None:
    for _ in range(times):
        gate.write_text("go\n")


def until_it_waits(gate: Path) -> None:
    """Until somebody stands at the gate, who then has written all that went before."""
    while True:
        try:
            os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
            return
        except OSError:  # it has no reader
            time.sleep(0.05)


def test_a_bar_shows_how_far_a_file_is_and_an_interrupt_says_what_is_saved(untrained, tmp_path):
    output = ["--output", "out.txt"]
    with slow(tmp_path, untrained, *output, on_a_terminal=True) as (process, screen, gate):
        let_through(gate, 1)
        read_until(screen, b"| 2/6 [")
        until_it_waits(gate)
        process.send_signal(signal.SIGINT)
        said = read_until(screen, b"command again").decode()
        assert process.wait(PATIENCE) == 130
    assert (
        "mtkit: interrupted: the first 2 lines are saved; to continue, run the same command" in said
    )
    with slow(tmp_path, untrained, *output, on_a_terminal=True) as (process, screen, gate):
        # It begins where the first one ended.
        read_until(screen, b"| 2/6 [")
        let_through(gate, 1)
        read_until(screen, b"| 4/6 [")
        let_through(gate, 1)
        assert process.wait(PATIENCE) == 0
    expected = Translator.load(untrained, device="cpu").translate(
        ["one", "two", "three", "four", "five", "six"]
    )
    assert (tmp_path / "out.txt").read_text(encoding="utf-8") == "".join(
        f"{text}\n" for text in expected
    )


@pytest.mark.parametrize(
    ("output", "times", "says"),
    [
        ([], 1, b"mtkit: interrupted: 2 lines were written\n"),
        (["--output", "out.txt"], 0, b"mtkit: interrupted: nothing is saved yet\n"),
    ],
)
def test_an_interrupt_says_how_much_there_is(output, times, says, untrained, tmp_path):
    with slow(tmp_path, untrained, *output) as (process, screen, gate):
        let_through(gate, times)
        assert process.stdout is not None
        for _ in range(2 * times):
            process.stdout.readline()
        until_it_waits(gate)
        process.send_signal(signal.SIGINT)
        assert b"/6" not in read_until(screen, says)
        assert process.wait(PATIENCE) == 130


# What must not be lost


def test_the_input_is_never_replaced_by_the_output(run_translate, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "in.txt")
    for name in ("in.txt", "link"):
        status, _, (line,) = run_translate("--output", tmp_path / name)
        assert (status, line[:45]) == (2, "mtkit: error: --output would replace the --in")
        assert (tmp_path / "in.txt").read_text() == "one two three\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_standard_output_is_one_line_while_more_input_may_come(untrained):
    command = ["-m", "mtkit", "-q", "translate", "--run", str(untrained.path), "--device", "cpu"]
    with open("/dev/full", "wb") as full:
        process = subprocess.Popen(
            [sys.executable, *command], stdin=subprocess.PIPE, stdout=full, stderr=subprocess.PIPE
        )
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(b"one two\n")
    process.stdin.flush()
    # Whoever still waits for input must not keep the program from ending.
    assert process.wait(timeout=600) == 1
    assert process.stderr.read() == b"mtkit: error: standard output: No space left on device\n"
    process.stdin.close()
    process.stderr.close()
