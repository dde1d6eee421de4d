"""The commands: what they print where, and how each mistake ends."""

from __future__ import annotations

import dataclasses
import io
import json
import logging
import os
import random
import re
import resource
import shlex
import shutil
import string
import subprocess
import sys
import textwrap
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
import torch
from conftest import change_settings, claim_checkpoints, reseal

from mtkit import __version__
from mtkit.__main__ import program
from mtkit.cli import commands, main
from mtkit.cli.console import configure_logging
from mtkit.cli.options import GroupedOption
from mtkit.config import Config, PrepareConfig, dump_config, load_config, presets
from mtkit.data import PreparedData
from mtkit.prepare.catalogue import CATALOGUE
from mtkit.run_folder import Run

if TYPE_CHECKING:
    from conftest import TinyText

COMMANDS = ["prepare", "train", "translate", "score", "export"]


@dataclasses.dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line of an error the user can mend."""
        assert self.status in (1, 2), self.err
        assert self.out == ""
        (line,) = self.err.splitlines()
        assert line.startswith("mtkit: error: ")
        assert self.err == f"{line}\n"
        return line


class Place:
    """A working directory and the program in it."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        capture: pytest.CaptureFixture[str],
    ) -> None:
        self.folder = folder
        self._monkeypatch = monkeypatch
        self._capture = capture

    def mtkit(self, *arguments: str | Path, stdin: bytes = b"") -> Outcome:
        """Run the program in this process."""
        with self._monkeypatch.context() as patch:
            patch.chdir(self.folder)
            patch.setattr(sys, "argv", ["mtkit", *map(str, arguments)])
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
            self._capture.readouterr()
            with pytest.raises(SystemExit) as caught:
                main()
            out, err = self._capture.readouterr()
        status = caught.value.code
        assert isinstance(status, int)
        return Outcome(status, out, err)

    def files(self) -> dict[Path, bytes | None]:
        """Everything there is, with the bytes of files."""
        return {
            path: path.read_bytes() if path.is_file() else None for path in self.folder.rglob("*")
        }

    def refused(self, *arguments: str | Path, stdin: bytes = b"") -> str:
        """The one line that refuses these arguments, which leave everything as it was."""
        before = self.files()
        # Quiet, so that the error is all there is.
        outcome = self.mtkit("-q", *arguments, stdin=stdin)
        assert self.files() == before
        return outcome.error

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path


@pytest.fixture
def place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Place:
    """An empty working directory."""
    folder = tmp_path / "place"
    folder.mkdir()
    return Place(folder, monkeypatch, capfd)


@pytest.fixture
def prepared(place: Place, tiny_data: PreparedData) -> Place:
    """A working directory with data/tiny."""
    shutil.copytree(tiny_data.path, place.folder / "data" / "tiny")
    return place


@pytest.fixture
def trained(prepared: Place, tiny_run: Run) -> Place:
    """A working directory with data/tiny and runs/tiny."""
    shutil.copytree(tiny_run.path, prepared.folder / "runs" / "tiny")
    return prepared


@pytest.fixture
def tiny_yaml(place: Place, tiny_run: Run) -> Path:
    """The configuration of the tiny run, outside of the working directory."""
    path = place.folder.parent / "tiny.yaml"
    path.write_text(dump_config(tiny_run.config), encoding="utf-8")
    return path


def prepare_arguments(text: TinyText, **changes: tuple[Path, Path]) -> list[str]:
    """The command line that prepares the tiny corpus, with other files where given."""
    files = {"train": text.train, "valid": text.valid, "test": text.test, **changes}
    arguments = ["prepare", "tiny", "--src-lang", "en", "--tgt-lang", "de", "--vocab-size", "300"]
    for split, (src, tgt) in files.items():
        arguments += [f"--{split}", str(src), str(tgt)]
    return arguments


# ---------------------------------------------------------------------------------------------
# Help


def test_the_commands_are_those_that_are_promised():
    assert sorted(commands.commands) == sorted(COMMANDS)


def test_help_needs_neither_pytorch_nor_any_other_slow_library():
    code = """
import sys
from mtkit.cli import main
for command in ([], ["prepare"], ["train"], ["translate"], ["score"], ["export"]):
    sys.argv = ["mtkit", *command, "--help"]
    try:
        main()
    except SystemExit as stop:
        assert stop.code == 0
slow = {"torch", "numpy", "datasets", "sentencepiece", "sacrebleu", "pydantic", "yaml", "tqdm"}
sys.exit(f"loaded: {slow & sys.modules.keys()}" if slow & sys.modules.keys() else 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Usage: mtkit") == 6


@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_help_answers_in_half_a_second(command: str | None):
    arguments = [sys.executable, "-m", "mtkit", *([command] if command else []), "--help"]
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(arguments, capture_output=True, check=True, timeout=60)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        # Of the processor, because the clock on the wall also counts the neighbours' work.
        used = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        seconds.append(used)
        if used < 0.5:
            break
    assert min(seconds) < 0.5


def examples(command: str) -> list[str]:
    """The command lines at the end of a command's help."""
    lines = commands.commands[command].get_help(click.Context(commands.commands[command]))
    heading, _, printed = lines.partition("  Examples:\n")
    assert heading
    return textwrap.dedent(printed).replace("\\\n", " ").splitlines()


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_ends_with_examples(
    command: str, place: Place, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "80")
    outcome = place.mtkit(command, "--help")
    assert (outcome.status, outcome.err) == (0, "")
    assert len(examples(command)) > 1
    for example in examples(command):
        assert f"mtkit {command}" in example
    assert outcome.out.endswith(f"{examples(command)[-1].split(' ')[-1]}\n")
    # Each example can be read, and copied, from a terminal of 80 columns.
    assert max(map(len, outcome.out.splitlines())) <= 80


def write_words(place: Place, name: str, count: int) -> None:
    """Sentences of random words, whose translations are the words spelled backwards."""
    chance = random.Random(name)
    sentences = [
        ["".join(chance.choices(string.ascii_lowercase, k=chance.randint(3, 9))) for _ in range(8)]
        for _ in range(count)
    ]
    src = [" ".join(words) for words in sentences]
    tgt = [" ".join(word[::-1] for word in words) for words in sentences]
    for side, lines in (("en", src), ("de", tgt)):
        place.write(f"{name}.{side}", "".join(f"{line}\n" for line in lines))
    rows = (f"{one}\t{other}\n" for one, other in zip(src, tgt, strict=True))
    place.write(f"{name}.tsv", "".join(rows))


@pytest.mark.parametrize(
    ("command", "example"),
    [(command, example) for command in COMMANDS for example in examples(command)],
    ids=lambda text: text,
)
def test_the_examples_of_the_help_run_as_printed(
    command: str,
    example: str,
    place: Place,
    tiny_data: PreparedData,
    tiny_run: Run,
    monkeypatch: pytest.MonkeyPatch,
):
    for name in ("demo-en-de", "mine"):
        shutil.copytree(tiny_data.path, place.folder / "data" / name)
    for name in ("demo-en-de-demo", "mine"):
        shutil.copytree(tiny_run.path, place.folder / "runs" / name)
    if command == "prepare":
        # A tenth of the demo corpus.
        monkeypatch.setattr("mtkit.prepare.demo.TRAIN_PAIRS", 3000)
        shutil.rmtree(place.folder / "data" / ("mine" if "mine" in example else "demo-en-de"))
        write_words(place, "train", 2000)
        write_words(place, "valid", 20)
        write_words(place, "test", 20)
        write_words(place, "pairs", 2000)
    else:
        for name in ("test.en", "test.de", "output.de", "other.de"):
            place.write(name, "one two three four five\nsix seven\n")
    if command == "export":
        pytest.importorskip("ctranslate2")
    if command == "train":
        # The presets take minutes.
        monkeypatch.setattr("mtkit.train.run", lambda *_, **__: True)
    stdin = b""
    if "|" in example:
        text, _, example = example.partition(" | ")
        stdin = f"{shlex.split(text)[1]}\n".encode()
    words = shlex.split(example)
    for redirection in ("<", ">"):
        if redirection in words:
            at = words.index(redirection)
            stdin = (place.folder / words[at + 1]).read_bytes() if redirection == "<" else stdin
            del words[at : at + 2]
    outcome = place.mtkit(*words[1:], stdin=stdin)
    assert outcome.status == 0, outcome.err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_in_a_group_of_the_help(command: str, place: Place):
    pages = re.split(r"^(?=\w.*:)", place.mtkit(command, "--help").out, flags=re.MULTILINE)
    _, _, *groups = pages
    shown = [option for group in groups for option in re.findall(r"^  .*?(--[\w-]+)", group, re.M)]
    for parameter in commands.commands[command].params:
        if isinstance(parameter, click.Option):
            assert isinstance(parameter, GroupedOption), parameter.name
            assert shown.count(parameter.opts[0]) >= 1, parameter.name
    assert groups[-1].startswith("Information:\n")
    assert "--help" in groups[-1]
    assert "Options:" not in place.mtkit(command, "--help").out


def test_the_groups_of_the_help_have_one_second_column(place: Place):
    out = place.mtkit("translate", "--help").out
    starts = {len(found) for found in re.findall(r"^(  -.*?  +)\w", out, re.MULTILINE)}
    assert starts == {30}


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("mtkit tr", ["train", "translate"]),
        ("mtkit translate --top", ["--top-k", "--top-p"]),
        ("mtkit score --metric ", ["bleu", "chrf", "ter"]),
    ],
)
def test_a_shell_completes_commands_options_and_values(
    typed: str, offered: list[str], place: Place, monkeypatch: pytest.MonkeyPatch
):
    # As the function asks that `_MTKIT_COMPLETE=bash_source mtkit` defines.
    monkeypatch.setenv("_MTKIT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(typed.count(" ")))
    outcome = place.mtkit()
    assert (outcome.status, outcome.err) == (0, "")
    assert [line.split(",")[1] for line in outcome.out.splitlines()] == offered


def test_the_help_says_how_to_complete_in_each_shell(place: Place, monkeypatch: pytest.MonkeyPatch):
    page = place.mtkit("--help").out
    for shell in ("bash", "zsh", "fish"):
        assert f"_MTKIT_COMPLETE={shell}_source mtkit" in page
    # The check of the version of Bash starts one.
    monkeypatch.setenv("_MTKIT_COMPLETE", "zsh_source")
    assert "_MTKIT_COMPLETE=zsh_complete mtkit" in place.mtkit().out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_says_what_it_is(command: str):
    for parameter in commands.commands[command].params:
        if parameter.param_type_name == "option":
            assert getattr(parameter, "help", None), parameter.name


def test_a_command_is_described_in_the_list_of_commands(place: Place):
    out = place.mtkit("--help").out
    for command in COMMANDS:
        assert re.search(rf"^  {command} +\w+", out, re.MULTILINE)


def test_the_version_is_that_of_the_installed_package(place: Place):
    outcome = place.mtkit("--version")
    assert (outcome.status, outcome.out, outcome.err) == (0, f"mtkit {__version__}\n", "")
    assert metadata.version("mtkit") == __version__


# ---------------------------------------------------------------------------------------------
# Wrong usage


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["tranlsate"], "tranlsate"),
        (["train"], "--config"),
        (["train", "--config"], "--config"),
        (["train", "--config", "demo", "--device", "tpu"], "tpu"),
        (["translate", "--beam-size", "0"], "0"),
        (["translate", "--beam-size", "four"], "four"),
        (["translate", "--beams", "4"], "--beams"),
        (["score", "--metric", "rouge"], "rouge"),
        (["prepare"], "--list"),
        (["prepare", "../escaped"], "../escaped"),
        (["prepare", ".hidden"], ".hidden"),
        (["prepare", "mine", "--src-lang", "en"], "--tgt-lang"),
        (["prepare", "mine", "--test", "a", "b"], "--train"),
        (["prepare", "mine", "--train", "a"], "--train"),
        (["prepare", "demo-en-de", "--vocab-size", "-5"], "-5"),
        (["score", "--reference", "ref.txt"], "HYP"),
        (["score", "hyp.txt"], "--reference"),
    ],
)
def test_wrong_usage_is_one_line_with_status_2(arguments: list[str], word: str, place: Place):
    outcome = place.mtkit(*arguments)
    assert outcome.status == 2
    assert word in outcome.error
    assert place.files() == {}


def test_no_command_at_all_shows_the_help(place: Place):
    outcome = place.mtkit()
    assert outcome.status in (0, 2)
    assert "mtkit prepare demo-en-de" in outcome.out + outcome.err
    assert "Traceback" not in outcome.err


# ---------------------------------------------------------------------------------------------
# prepare


def test_the_catalogue_is_listed_on_standard_output(place: Place):
    outcome = place.mtkit("prepare", "--list")
    assert (outcome.status, outcome.err) == (0, "")
    rows = {line.split()[0]: line for line in outcome.out.splitlines()[1:]}
    assert rows.keys() == {corpus.name for corpus in CATALOGUE}
    assert "37,000" in rows["wmt14-en-de"]
    assert "4,508,785" in rows["wmt14-de-en"]
    assert place.files() == {}


@pytest.mark.parametrize(
    ("command", "prefix", "models"),
    [
        ("prepare", "", {"": PrepareConfig}),
        ("train", "train.", {f"{k}.": f.annotation for k, f in Config.model_fields.items()}),
    ],
)
def test_settings_are_listed_with_their_defaults_and_descriptions(
    command: str, prefix: str, models: dict[str, Any], place: Place
):
    outcome = place.mtkit(command, "--settings")
    assert (outcome.status, outcome.err) == (0, "")
    heading, *rows = outcome.out.splitlines()
    assert heading.split() == ["KEY", "DEFAULT", "DESCRIPTION"]
    found = {row.split()[0]: re.split("  +", row, maxsplit=2)[1:] for row in rows}
    expected = {
        f"{section}{name}": [json.dumps(field.default), field.description]
        for section, model in models.items()
        for name, field in model.model_fields.items()
    }
    assert found == expected
    assert all(f"{prefix}{key}" in expected for key in (["max_steps"] if prefix else ["max_ratio"]))
    assert place.files() == {}


def test_the_presets_are_listed_with_a_line_about_each(place: Place):
    outcome = place.mtkit("train", "--list")
    assert (outcome.status, outcome.err) == (0, "")
    heading, *rows = outcome.out.splitlines()
    assert heading.split() == ["PRESET", "DESCRIPTION"]
    described = dict(re.split("  +", row, maxsplit=1) for row in rows)
    assert list(described) == presets()
    assert described["big"] == "The paper's big model (Table 3, last row), for English-German"
    # The sentence stands on two lines of the file, and has a full stop inside.
    assert described["fairseq"].endswith("in few, very large updates at twice the learning rate")
    assert place.files() == {}


def test_prepare_writes_the_folder_and_prints_no_data(place: Place, tiny_text: TinyText):
    outcome = place.mtkit(*prepare_arguments(tiny_text))
    assert (outcome.status, outcome.out) == (0, "")
    data = PreparedData.open(place.folder / "data" / "tiny")
    assert len(data.pairs("train")) == 200
    assert "data/tiny" in outcome.err
    assert [path.name for path in (place.folder / "data").iterdir()] == ["tiny"]


def test_quiet_prints_nothing(place: Place, tiny_text: TinyText):
    outcome = place.mtkit("-q", *prepare_arguments(tiny_text), "--out", "here")
    assert (outcome.status, outcome.out, outcome.err) == (0, "", "")
    PreparedData.open(place.folder / "here").verify()


def test_a_page_about_the_data_is_written_also_where_nothing_else_is(
    place: Place, tiny_text: TinyText
):
    outcome = place.mtkit(*prepare_arguments(tiny_text), "--dry-run", "--report", "page.html")
    assert outcome.status == 0
    assert [path.name for path in place.files()] == ["page.html"]
    outcome = place.mtkit(*prepare_arguments(tiny_text), "--report", "other.html")
    assert outcome.status == 0
    assert outcome.out == ""
    assert "wrote other.html" in outcome.err
    pages = [(place.folder / name).read_bytes() for name in ("page.html", "other.html")]
    assert pages[0] == pages[1]


def test_a_page_that_cannot_be_written_is_refused_before_any_work(
    place: Place, tiny_text: TinyText, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("mtkit.prepare.prepare_files", None)
    error = place.refused(*prepare_arguments(tiny_text), "--report", "none/page.html")
    assert "none/page.html: there is no folder" in error


def test_a_missing_file_is_named(place: Place, tiny_text: TinyText):
    missing = Path("nowhere.en")
    error = place.refused(*prepare_arguments(tiny_text, train=(missing, tiny_text.train[1])))
    assert "nowhere.en: No such file" in error


def test_unequal_files_are_refused_with_both_counts(place: Place, tiny_text: TinyText):
    short = place.write("short.de", "eins\nzwei\n")
    error = place.refused(*prepare_arguments(tiny_text, train=(tiny_text.train[0], short)))
    assert "200 lines" in error
    assert "has 2;" in error


def test_another_encoding_is_refused_by_file_and_line(place: Place, tiny_text: TinyText):
    bad = place.write("bad.de", b"eins\n" * 41 + b"f\xfcnf\n" * 159)
    error = place.refused(*prepare_arguments(tiny_text, train=(tiny_text.train[0], bad)))
    assert "bad.de" in error
    assert "line 42;" in error


def test_an_empty_corpus_is_refused_by_name(place: Place, tiny_text: TinyText):
    empty = place.write("empty.en", ""), place.write("empty.de", "")
    assert "empty.en" in place.refused(*prepare_arguments(tiny_text, train=empty))


def test_a_vocabulary_too_large_is_refused_with_the_largest(place: Place, tiny_text: TinyText):
    error = place.refused(*prepare_arguments(tiny_text), "--vocab-size", "32000")
    assert "32000" in error
    assert re.search(r"largest possible is \d+", error)


def test_an_output_folder_that_cannot_be_made_is_refused(place: Place, tiny_text: TinyText):
    place.write("file", "not a folder")
    assert "file/out" in place.refused(*prepare_arguments(tiny_text), "--out", "file/out")


@pytest.mark.parametrize(
    ("more", "status", "words"),
    [
        (["--weight", "1", "--weight", "2"], 2, ["--weight", "one for each"]),
        (["--weight", "0"], 2, ["--weight", "0"]),
        (["--weight", "-1"], 2, ["--weight", "-1"]),
        (["--weight", "often"], 2, ["--weight", "often"]),
        (["--weight", "nan"], 2, ["--weight", "nan"]),
        (["--weight", "inf"], 2, ["--weight", "inf"]),
        (["--valid-from", "more"], 2, ["--valid-from cannot be combined with --valid"]),
        (["--test-from", "more"], 2, ["--test-from cannot be combined with --test"]),
        (["--train-from", "nowhere"], 1, ["nowhere.en", "nowhere.de"]),
        (["--train-from", "nowhere.tsv"], 1, ["nowhere.tsv", "No such file"]),
        (["--set", "max_ration=3"], 1, ["max_ration", "max_ratio?"]),
        (["--set", "max_ratio=wide"], 1, ["max_ratio", "wide"]),
        (["--set", "max_ratio=0.5"], 1, ["max_ratio", "0.5"]),
        (["--set", "max_ratio"], 1, ["max_ratio", "key=value"]),
        (["--set", "drop_overlap=1"], 1, ["drop_overlap", "1"]),
        (["--set", "user_defined_symbols=<2de>"], 1, ["user_defined_symbols", "<2de>"]),
        (["--set", "vocab_size=many"], 1, ["vocab_size", "many"]),
        (["--workers", "0"], 2, ["--workers", "0"]),
        (["--vocab-size", "9.5"], 2, ["--vocab-size", "9.5"]),
        (["--out", ""], 1, ["current folder", "another --out"]),
    ],
)
def test_options_that_do_not_fit_are_refused_in_one_line(
    more: list[str], status: int, words: list[str], place: Place, tiny_text: TinyText
):
    before = place.files()
    outcome = place.mtkit("-q", *prepare_arguments(tiny_text), *more)
    assert (outcome.status, place.files()) == (status, before)
    for word in words:
        assert word in outcome.error


def test_a_dry_run_shows_what_would_be_dropped_and_writes_nothing(
    place: Place, tiny_text: TinyText
):
    src = place.write("my.en", tiny_text.train[0].read_bytes() + b"\nBerlin\n")
    tgt = place.write("my.de", tiny_text.train[1].read_bytes() + b"null\nBerlin\n")
    before = place.files()
    outcome = place.mtkit("-q", *prepare_arguments(tiny_text, train=(src, tgt)), "--dry-run")
    assert (outcome.status, outcome.err) == (0, "")
    assert "identical sides" in outcome.out
    assert "Berlin" in outcome.out
    assert place.files() == before


def test_a_folder_that_exists_is_refused_with_the_way_out(prepared: Place, tiny_text: TinyText):
    assert "--force" in prepared.refused(*prepare_arguments(tiny_text))


@pytest.mark.parametrize("out", [".", "..", "/", "../place", "../place/."])
@pytest.mark.parametrize("force", [[], ["--force"]])
def test_the_folder_one_stands_in_is_not_replaced(
    out: str, force: list[str], trained: Place, tiny_text: TinyText
):
    line = trained.refused(*prepare_arguments(tiny_text), "--out", out, *force)
    assert line.startswith(f"mtkit: error: {Path(out)}: is the current folder or contains it")
    line = trained.refused("export", "runs/tiny", out, "--format=safetensors", *force)
    assert "give another OUT" in line


def test_a_vocabulary_beyond_all_bounds_is_refused(place: Place, tiny_text: TinyText):
    for size in ("4294967297", "4194305"):
        line = place.refused(*prepare_arguments(tiny_text), "--vocab-size", size)
        assert "vocab_size" in line
        assert size in line
    line = place.refused(*prepare_arguments(tiny_text), "--vocab-size", "4194304")
    assert "more than this text supports" in line


def test_an_unknown_corpus_suggests_the_nearest(place: Place):
    assert "multi30k-en-de" in place.refused("prepare", "multi30k-en-dee")


# ---------------------------------------------------------------------------------------------
# train


def test_train_prints_no_data_and_names_the_folder_it_chose(prepared: Place, tiny_yaml: Path):
    outcome = prepared.mtkit("train", "--config", tiny_yaml, "--device", "cpu")
    assert (outcome.status, outcome.out) == (0, "")
    assert "data/tiny" in outcome.err
    run = Run.open(prepared.folder / "runs" / "tiny-tiny")
    assert run.checkpoints()[-1].step == 4


def test_a_dry_run_prints_a_configuration_that_loads_and_writes_nothing(
    prepared: Place, tiny_yaml: Path, tmp_path: Path
):
    before = prepared.files()
    outcome = prepared.mtkit("train", "--config", tiny_yaml, "--dry-run", "--device", "cpu")
    assert outcome.status == 0
    assert prepared.files() == before
    shown = tmp_path / "shown.yaml"
    shown.write_text(outcome.out, encoding="utf-8")
    assert load_config(str(shown)) == load_config(str(tiny_yaml))
    assert "parameters" in outcome.out


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("train.max_stepz=3", ("train.max_stepz", "did you mean train.max_steps")),
        ("train.max_steps=many", ("train.max_steps", "'many'")),
        ("data.tgt_lang=no", ("data.tgt_lang", "quote it")),
        ("max_steps=3", ("max_steps", "section.key=value")),
        ("train.device_batch_tokens=2", ("train.device_batch_tokens", "2")),
        ("data.src_lang=fr", ("data.src_lang", "fr", "en")),
    ],
)
def test_a_wrong_setting_is_named(setting: str, words: tuple[str, ...], prepared: Place):
    error = prepared.refused("train", "--config", "demo", "--set", setting, "--device", "cpu")
    for word in words:
        assert word in error


def test_a_dry_run_counts_on_the_workers_that_would_train(
    prepared: Place, tiny_yaml: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    arguments = ["train", "--config", tiny_yaml, "--dry-run", "--device", "cpu"]
    alone = prepared.mtkit(*arguments).out.partition("\ndata:")[0]
    assert "workers" not in alone
    several = ["--workers", "3", "--set", "train.fsdp=true"]
    outcome = prepared.mtkit(*arguments, *several)
    assert outcome.status == 0, outcome.err
    (device,) = re.findall("# device: .*", outcome.out)
    assert device.endswith(", 3 workers")
    assert "target tokens/s over" in outcome.out
    assert ", by one worker alone" in outcome.out
    assert "if all 3 workers keep that speed" in outcome.out
    # Cut so that all three have as many.
    for text, rest in ((alone, 1), (outcome.out, 0)):
        (micro_batches,) = re.findall(r"(\d+) micro-batches", text)
        assert min(int(micro_batches) % 3, 1) == rest


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The command lines of workers that would have been started."""
    commands: list[list[str]] = []

    def launch(arguments: list[str], count: int, **_: Any) -> int:
        commands.append(arguments)
        return 0

    monkeypatch.setattr("mtkit.train.launch", launch)
    return commands


def test_workers_get_the_paths_so_that_they_do_not_find_newer_ones(
    prepared: Place, tiny_yaml: Path, launched: list[list[str]]
):
    outcome = prepared.mtkit("train", "--config", tiny_yaml, "--workers", "2")
    assert outcome.status == 0
    (command,) = launched
    assert command[:3] == ["-m", "mtkit", "train"]
    assert command[-2:] == ["--data=data/tiny", "--run=runs/tiny-tiny"]


@pytest.mark.parametrize("count", [1, 2])
def test_a_worker_of_torchrun_starts_no_others(
    count: int,
    prepared: Place,
    tiny_yaml: Path,
    launched: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    monkeypatch.setattr("mtkit.train.run", lambda *_, **__: True)
    monkeypatch.setattr("mtkit.cli._leave", sys.exit)
    for name, value in {"RANK": 0, "WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1"}.items():
        monkeypatch.setenv(name, str(value))
    assert prepared.mtkit("train", "--config", tiny_yaml).status == 0
    for option in ("--workers", "--max-restarts"):
        assert "torchrun" in prepared.refused("train", "--config", tiny_yaml, option, "2")
    assert not launched


def test_messages_have_levels_and_later_workers_print_only_errors(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def say() -> str:
        configure_logging(quiet=False)
        logger = logging.getLogger("mtkit.test")
        logger.info("a note")
        logger.warning("take care")
        logger.error("it broke")
        return capsys.readouterr().err

    assert say() == "mtkit: a note\nmtkit: warning: take care\nmtkit: error: it broke\n"
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    assert say() == "mtkit: error: it broke\n"


def test_a_wrong_configuration_file_is_named(prepared: Place):
    prepared.write("my.yaml", "model: {droput: 0.3}\n")
    error = prepared.refused("train", "--config", "my.yaml")
    assert "my.yaml" in error
    assert "did you mean model.dropout" in error


def test_an_unknown_preset_is_refused_with_those_there_are(prepared: Place):
    error = prepared.refused("train", "--config", "bigg")
    assert "did you mean big" in error
    assert "small" in error


def test_training_without_data_says_how_to_make_some(place: Place):
    assert "mtkit prepare" in place.refused("train", "--config", "demo")
    place.write("data/half/train.src.bin", b"")
    assert "mtkit prepare" in place.refused("train", "--config", "demo")
    assert "data/half" in place.refused("train", "--config", "demo", "--data", "data/half")


def test_changed_data_is_refused_by_file(prepared: Place, tiny_yaml: Path):
    file = prepared.folder / "data" / "tiny" / "train.src.bin"
    content = bytearray(file.read_bytes())
    content[0] ^= 1
    file.write_bytes(bytes(content))
    assert "train.src.bin" in prepared.refused("train", "--config", tiny_yaml, "--device", "cpu")


def test_a_run_folder_that_cannot_be_made_is_refused(prepared: Place, tiny_yaml: Path):
    prepared.write("file", "not a folder")
    error = prepared.refused("train", "--config", tiny_yaml, "--run", "file/run", "--device", "cpu")
    assert "file/run" in error


def test_a_run_is_not_continued_as_another(trained: Place, tiny_yaml: Path):
    arguments = ["train", "--config", tiny_yaml, "--run", "runs/tiny", "--device", "cpu"]
    error = trained.refused(*arguments, "--set", "model.d_ff=64")
    assert "model.d_ff" in error
    assert "--restart" in error


def test_a_run_is_not_continued_on_other_data(trained: Place, tiny_yaml: Path, tiny_text: TinyText):
    swapped = prepare_arguments(tiny_text, train=tiny_text.valid)
    assert trained.mtkit("-q", *swapped, "--out", "data/other").status == 0
    arguments = ["train", "--config", tiny_yaml, "--run", "runs/tiny", "--device", "cpu"]
    error = trained.refused(*arguments, "--data", "data/other")
    assert "runs/tiny" in error
    assert "data" in error


def test_training_with_a_gpu_that_is_not_there_is_refused(
    prepared: Place, tiny_yaml: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    error = prepared.refused("train", "--config", tiny_yaml, "--device", "cuda")
    assert "--device cuda" in error


# ---------------------------------------------------------------------------------------------
# translate


def test_translate_prints_one_line_for_each_line_and_nothing_else(trained: Place):
    text = "one two\n\n   \nthree\u2028four\nfive\x0bsix\r\nlast without an end"
    outcome = trained.mtkit("translate", stdin=text.encode())
    assert outcome.status == 0
    lines = outcome.out.split("\n")
    assert len(lines) == 7
    assert (lines[1], lines[2], lines[6]) == ("", "", "")
    assert "runs/tiny" in outcome.err
    assert all(line.startswith("mtkit: ") for line in outcome.err.splitlines())


def test_translate_of_nothing_prints_nothing(trained: Place):
    outcome = trained.mtkit("-q", "translate", stdin=b"")
    assert (outcome.status, outcome.out, outcome.err) == (0, "", "")


def test_translate_between_files_is_translate_between_streams(trained: Place):
    text = b"one two three\nnine\n"
    trained.write("in.txt", text)
    by_stream = trained.mtkit("-q", "translate", stdin=text)
    by_file = trained.mtkit("-q", "translate", "--input", "in.txt", "--output", "out.txt")
    assert (by_file.status, by_file.out, by_file.err) == (0, "", "")
    assert (trained.folder / "out.txt").read_text() == by_stream.out
    assert [p.name for p in trained.folder.glob("*out.txt*")] == ["out.txt"]


def test_several_translations_of_a_line_are_numbered_rows_best_first(trained: Place):
    outcome = trained.mtkit("-q", "translate", "--nbest", "3", stdin=b"one two\nnine\n")
    rows = [line.split("\t") for line in outcome.out.splitlines()]
    assert [row[0] for row in rows] == ["1", "1", "1", "2", "2", "2"]
    for number in "12":
        scores = [float(row[1]) for row in rows if row[0] == number]
        assert scores == sorted(scores, reverse=True)


def test_input_that_is_not_utf8_is_refused_by_line(trained: Place):
    error = trained.mtkit("-q", "translate", stdin=b"one\n\xff\n")
    assert error.status == 1
    assert "standard input, line 2:" in error.err
    trained.write("in.txt", b"one\n\xff\n")
    error_line = trained.refused("translate", "--input", "in.txt", "--output", "out.txt")
    assert "in.txt, line 2:" in error_line


def test_a_missing_input_file_is_named(trained: Place):
    assert "nowhere.txt" in trained.refused("translate", "--input", "nowhere.txt")


def test_an_output_file_that_cannot_be_made_is_refused(trained: Place):
    trained.write("file", "not a folder")
    error = trained.refused("translate", "--output", "file/out.txt", stdin=b"one\n")
    assert "file/out.txt" in error


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


@pytest.mark.parametrize("command", ["translate", "score"])
@pytest.mark.parametrize("kept", [0, 5, 1000])
def test_truncated_weights_are_refused_by_file(command: str, kept: int, trained: Place):
    for file in (trained.folder / "runs").rglob("model.safetensors"):
        file.write_bytes(file.read_bytes()[:kept])
    error = trained.refused(command, "--device", "cpu", stdin=b"one\n")
    assert "model.safetensors" in error


@pytest.mark.parametrize("which", ["newest", "average:0", "average:99", "average:", "7", "-1", ""])
def test_a_checkpoint_that_is_not_there_is_refused(which: str, trained: Place):
    error = trained.refused("translate", f"--checkpoint={which}", "--device", "cpu", stdin=b"one\n")
    assert f"--checkpoint {which}" in error


@pytest.mark.parametrize("which", ["last", "best", "average:1", "average:2", "2", "4"])
def test_checkpoints_are_found_by_name_and_step(which: str, trained: Place):
    outcome = trained.mtkit("translate", "--checkpoint", which, stdin=b"one\n")
    assert outcome.status == 0
    assert outcome.out.count("\n") == 1


@pytest.mark.parametrize("name", ["tokenizer.model", "config.yaml", "manifest.json"])
def test_a_damaged_run_is_refused_by_file(name: str, trained: Place):
    (trained.folder / "runs" / "tiny" / name).write_bytes(b"{[\0")
    assert name in trained.refused("translate", stdin=b"one\n")


@pytest.mark.parametrize("command", ["translate", "score"])
def test_computing_on_a_gpu_that_is_not_there_is_refused(
    command: str, trained: Place, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "--device cuda" in trained.refused(command, "--device", "cuda", stdin=b"one\n")


def test_the_reader_may_go_away(trained: Place):
    # As with `mtkit translate | head -1`.
    with subprocess.Popen(
        [sys.executable, "-m", "mtkit", "translate", "--device", "cpu"],
        cwd=trained.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.write(b"one two\n" * 50)
        process.stdin.close()
        err = process.stderr.read().decode()
        process.wait(timeout=60)
    assert "Traceback" not in err
    assert "BrokenPipe" not in err


# ---------------------------------------------------------------------------------------------
# score


def test_score_prints_metric_value_and_signature_on_one_line(place: Place):
    place.write("hyp.txt", "the cat sat on the mat\nit is raining today\n")
    outcome = place.mtkit("score", "hyp.txt", "--reference", "hyp.txt")
    # A text scores 100 against itself.
    assert outcome.status == 0
    assert re.fullmatch(r"BLEU 100\.00 \S*tok:13a\S*\n", outcome.out)
    assert outcome.err == ""


def test_each_metric_is_a_line_in_the_order_asked_for(place: Place):
    place.write("hyp.txt", "the cat sat on the mat\n")
    metrics = ["--metric", "ter", "--metric", "chrf", "--metric", "bleu"]
    outcome = place.mtkit("score", "hyp.txt", "--reference", "hyp.txt", *metrics)
    names = [line.split()[0] for line in outcome.out.splitlines()]
    assert names == ["TER", "chrF2", "BLEU"]
    values = [float(line.split()[1]) for line in outcome.out.splitlines()]
    assert values == [0.0, 100.0, 100.0]


def test_json_is_the_same_for_programs(place: Place):
    place.write("hyp.txt", "the cat sat on the mat\n")
    arguments = ["score", "-", "--reference", "hyp.txt"]
    text = b"the cat sat on a mat\n"
    (system,) = json.loads(place.mtkit(*arguments, "--json", stdin=text).out)["systems"]
    assert system["system"] == "-"
    (value,) = system["scores"]
    line = place.mtkit(*arguments, stdin=text).out
    assert line == f"{value['name']} {value['value']:.2f} {value['signature']}\n"


CAPTIONS = [
    "ein Mann mit einem Hut sitzt auf der Bank",
    "zwei Hunde rennen über die Wiese",
    "eine Frau im Ski-Anzug fährt den Berg hinab",
    "Kinder spielen im Sand-Kasten mit einem roten Ball",
]


@pytest.fixture
def captions(place: Place) -> Place:
    """A reference, and two systems of which the second is the worse one."""
    place.write("ref.txt", "".join(f"{line}\n" for line in CAPTIONS))
    place.write("a.txt", "".join(f"{line[:-2]}\n" for line in CAPTIONS))
    place.write("b.txt", "".join(f"{' '.join(line.split()[1:-1])}\n" for line in CAPTIONS))
    return place


def test_several_systems_are_a_table_with_the_signatures_below(captions: Place):
    metrics = ["--metric", "bleu", "--metric", "ter"]
    out = captions.mtkit("score", "a.txt", "b.txt", "--reference", "ref.txt", *metrics).out
    heading, first, second, *signatures = out.splitlines()
    assert heading.split() == ["SYSTEM", "BLEU", "TER"]
    for name, row in (("a.txt", first), ("b.txt", second)):
        alone = captions.mtkit("score", name, "--reference", "ref.txt", *metrics).out
        values = [line.split(" ", 2)[1] for line in alone.splitlines()]
        assert row.split() == [name, *values]
        assert [line.split(" ", 2)[2] for line in alone.splitlines()] == [
            line.split(" ", 1)[1] for line in signatures
        ]


def test_paired_tests_say_how_sure_a_difference_is(captions: Place):
    arguments = ["score", "a.txt", "b.txt", "--reference", "ref.txt", "--paired"]
    table = captions.mtkit(*arguments).out.splitlines()
    assert table[0].split("  ")[0] == "SYSTEM"
    assert "baseline" in table[1]
    assert "bs:1000|ar:10000|seed:12345" in table[-1]
    first, second = json.loads(captions.mtkit(*arguments, "--json").out)["systems"]
    assert "p_bootstrap" not in first["scores"][0]
    assert f"{second['scores'][0]['p_randomisation']:.4f}" == table[2].split()[-1]
    assert "two or more" in captions.refused("score", "a.txt", "--reference", "ref.txt", "--paired")


def test_the_papers_protocol_stands_beside_the_one_of_wmt(captions: Place):
    arguments = ["score", "a.txt", "--reference", "ref.txt", "--protocol", "paper"]
    outcome = captions.mtkit(*arguments, "--tgt-lang", "de")
    assert [line.split()[0] for line in outcome.out.splitlines()] == ["BLEU", "BLEU-paper"]
    assert "quotes" in outcome.err
    assert outcome.err.count("\n") == 1
    assert "--tgt-lang" in captions.refused(*arguments)


def test_sentences_come_one_a_row_and_the_worst_first_if_asked(captions: Place):
    arguments = ["score", "b.txt", "--reference", "ref.txt", "--sentence", "--metric", "ter"]
    outcome = captions.mtkit(*arguments, "--metric", "chrf")
    rows = [line.split("\t") for line in outcome.out.splitlines()]
    assert [row[0] for row in rows] == ["1", "2", "3", "4"]
    assert [row[-1] for row in rows] == CAPTIONS
    assert "TER nrefs:1" in outcome.err
    worst = [
        line.split("\t") for line in captions.mtkit(*arguments, "--worst-first").out.splitlines()
    ]
    errors = [float(row[1]) for row in worst]
    assert errors == sorted(errors, reverse=True)
    listed = json.loads(captions.mtkit(*arguments, "--worst-first", "--json").out)
    assert [str(row["line"]) for row in listed] == [row[0] for row in worst]
    for row in listed:
        assert [value["name"] for value in row["scores"]] == ["TER"]
        assert row["scores"][0]["signature"].startswith("nrefs:1|")
    assert "one system" in captions.refused(*arguments, "a.txt")
    assert "--sentence" in captions.refused(*arguments[:4], "--worst-first")


def test_a_model_scores_given_translations(trained: Place):
    trained.write("src.txt", "one two\n\nthree\n")
    trained.write("hyp.txt", "zwei eins\n\ndrei\n")
    arguments = ["score", "--model-score", "--src", "src.txt", "--hyp", "hyp.txt"]
    rows = [line.split("\t") for line in trained.mtkit(*arguments).out.splitlines()]
    assert [row[0] for row in rows] == ["1", "2", "3"]
    assert rows[1][1:] == ["0.000000", "0.000000"]
    listed = json.loads(trained.mtkit(*arguments, "--json", "--run", "runs/tiny").out)
    assert listed[1]["tokens"] == []
    assert listed[2]["tokens"][-1]["piece"] == "</s>"
    for row, item in zip(rows, listed, strict=True):
        assert float(row[1]) == pytest.approx(item["log_prob"], abs=1e-5)
        total = sum(token["log_prob"] for token in item["tokens"])
        assert total == pytest.approx(item["log_prob"], abs=1e-9)
    trained.write("short.txt", "zwei eins\n")
    error = trained.refused(*arguments[:-1], "short.txt")
    assert "short.txt has 1 lines and src.txt has 3" in error
    assert "--src" in trained.refused("score", "--model-score", "--hyp", "hyp.txt")
    assert "--model-score" in trained.refused("score", "--src", "src.txt")
    assert "once" in trained.refused("score", "--model-score", "--src", "-", "--hyp", "-")


@pytest.mark.parametrize(
    "option", ["--metric=ter", "--protocol=paper", "--split=valid", "--data=x", "--worst-first"]
)
def test_options_that_the_model_score_has_no_use_for_are_refused(option: str, trained: Place):
    files = ["--src", "src.txt", "--hyp", "hyp.txt"]
    name = option.partition("=")[0]
    error = trained.refused("score", "--model-score", *files, option)
    assert f"{name} cannot be combined with --model-score" in error


def test_the_model_score_is_of_one_run_and_of_no_other_translations(trained: Place):
    arguments = ["score", "--model-score", "--src", "src.txt", "--hyp", "hyp.txt"]
    for more in (["hyp.txt"], ["--run", "runs/tiny", "--run", "runs/tiny"]):
        assert "requires one --run at most, and no HYP" in trained.refused(*arguments, *more)


@pytest.mark.parametrize("option", ["--beam-size=4", "--split=test", "--run=x", "--workers=1"])
def test_options_about_translating_are_refused_for_given_translations(option: str, captions: Place):
    error = captions.refused("score", "a.txt", "--reference", "ref.txt", option)
    assert f"{option.partition('=')[0]} cannot be combined with HYP" in error


@pytest.mark.parametrize("protocol", [["--tgt-lang", "de"], ["--protocol=paper", "--tgt-lang="]])
def test_a_language_belongs_to_the_papers_protocol(protocol: list[str], captions: Place):
    arguments = ["score", "a.txt", "--reference", "ref.txt", *protocol]
    assert "--tgt-lang" in captions.refused(*arguments)


@pytest.mark.parametrize("seed", ["abc", "-1", ""])
def test_a_seed_that_is_none_is_refused(
    seed: str, captions: Place, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SACREBLEU_SEED", seed)
    arguments = ["score", "a.txt", "b.txt", "--reference", "ref.txt", "--paired"]
    assert "SACREBLEU_SEED" in captions.refused(*arguments)


def rewrite_config(run: Path, text: str) -> None:
    """Have a run folder say that it was made with other settings."""
    (run / "config.yaml").write_text(text, encoding="utf-8")
    change_settings(run, load_config(str(run / "config.yaml")))


def test_runs_under_two_seeds_are_summed_up_by_mean_and_deviation(trained: Place):
    moved_away(trained.folder / "runs" / "tiny", trained.folder / "data" / "tiny")
    shutil.copytree(trained.folder / "runs" / "tiny", trained.folder / "runs" / "other")
    other = trained.folder / "runs" / "other"
    text = (other / "config.yaml").read_text(encoding="utf-8")
    rewrite_config(other, text.replace("seed: 1", "seed: 2"))
    runs = ["--run", "runs/tiny", "--run", "runs/other", "--metric", "chrf"]
    outcome = trained.mtkit("score", *runs)
    *_, spread, _ = outcome.out.splitlines()
    assert spread.startswith("mean ± deviation of runs/tiny, runs/other")
    (group,) = json.loads(trained.mtkit("score", *runs, "--json").out)["groups"]
    assert group["systems"] == ["runs/tiny", "runs/other"]
    # The weights are the same, so is the score.
    assert group["scores"][0]["deviation"] == 0.0

    def is_summed_up(*changes: tuple[str, str], runs: list[str] = runs) -> bool:
        changed = text
        for old, new in (("seed: 1", "seed: 2"), *changes):
            assert old in changed
            changed = changed.replace(old, new)
        rewrite_config(other, changed)
        return "mean" in trained.mtkit("score", *runs).out

    assert is_summed_up(("log_every: 2", "log_every: 1"))
    assert not is_summed_up(("label_smoothing: 0.1", "label_smoothing: 0.2"))
    assert not is_summed_up(("max_steps: 4", "max_steps: 5"))
    # Another search gives other translations.
    assert not is_summed_up(("beam_size: 4", "beam_size: 2"))
    # The same seed again says nothing about chance.
    assert not is_summed_up(("seed: 2", "seed: 1"))
    assert not is_summed_up(runs=["--run", "runs/tiny", "--run", "runs/tiny"])


def test_runs_are_compared_on_one_text_only(trained: Place, tiny_text: TinyText):
    moved_away(trained.folder / "runs" / "tiny", trained.folder / "data" / "tiny")
    shutil.copytree(trained.folder / "runs" / "tiny", trained.folder / "runs" / "other")
    swapped = prepare_arguments(tiny_text, test=tiny_text.valid)
    assert trained.mtkit("-q", *swapped, "--out", "data/swapped").status == 0
    moved_away(trained.folder / "runs" / "other", trained.folder / "data" / "swapped")
    manifest = trained.folder / "runs" / "other" / "manifest.json"
    swapped_data = PreparedData.open(trained.folder / "data" / "swapped")
    reseal(manifest, lambda it: it["data"].update(fingerprint=swapped_data.fingerprint))
    claim_checkpoints(manifest.parent)
    both = ["score", "--run", "runs/tiny", "--run", "runs/other"]
    assert "another test text" in trained.refused(*both)
    # The validation text is the same.
    assert trained.mtkit(*both, "--split", "valid").status == 0


def test_the_best_of_several_references_counts(place: Place):
    place.write("a.txt", "something else altogether here\n")
    place.write("b.txt", "the cat sat on the mat\n")
    text = b"the cat sat on the mat\n"
    references = ["--reference", "a.txt", "--reference", "b.txt"]
    outcome = place.mtkit("score", "-", *references, stdin=text)
    assert outcome.out.startswith("BLEU 100.00 ")
    assert "nrefs:2" in outcome.out


def test_translations_that_do_not_line_up_are_refused_with_both_counts(place: Place):
    place.write("hyp.txt", "one\ntwo\n")
    place.write("ref.txt", "eins\nzwei\ndrei\n")
    error = place.refused("score", "hyp.txt", "--reference", "ref.txt")
    assert "hyp.txt has 2" in error
    assert "ref.txt has 3" in error
    assert "at its end" in error
    place.write("good.txt", "eins\nzwei\n")
    both = ["--reference", "good.txt", "--reference", "ref.txt"]
    assert "ref.txt has 3" in place.refused("score", "hyp.txt", *both)


def test_a_separator_in_a_translation_is_not_a_new_line(place: Place):
    place.write("hyp.txt", "a\u2028b c d e\nx y z w\n")
    place.write("ref.txt", "a b c d e\nx y z w\n")
    assert place.mtkit("score", "hyp.txt", "--reference", "ref.txt").status == 0


def test_nothing_to_score_is_refused(place: Place):
    place.write("hyp.txt", "")
    place.refused("score", "hyp.txt", "--reference", "hyp.txt")


def test_files_to_score_that_are_missing_or_no_text_are_named(place: Place):
    place.write("hyp.txt", "one\n")
    place.write("bad.txt", b"one\n\xff\n")
    assert "nowhere.txt" in place.refused("score", "hyp.txt", "--reference", "nowhere.txt")
    assert "nowhere.txt" in place.refused("score", "nowhere.txt", "--reference", "hyp.txt")
    assert "bad.txt, line 2:" in place.refused("score", "bad.txt", "--reference", "hyp.txt")


def test_score_of_the_newest_run_is_that_of_its_translations(trained: Place):
    data = PreparedData.open(trained.folder / "data" / "tiny")
    src, tgt = data.text("test")
    trained.write("ref.txt", "".join(f"{line}\n" for line in tgt))
    # The fixture's run remembers another place of the same data.
    arguments = ["score", "--data", "data/tiny", "--metric", "chrf"]
    at_once = trained.mtkit(*arguments)
    assert at_once.status == 0
    assert at_once.out.startswith("chrF2 ")
    assert at_once.out.count("\n") == 1
    translated = trained.mtkit("translate", stdin="".join(f"{line}\n" for line in src).encode())
    by_hand = trained.mtkit(
        "score", "-", "--reference", "ref.txt", "--metric", "chrf", stdin=translated.out.encode()
    )
    assert at_once.out == by_hand.out


def moved_away(run: Path, place: Path) -> None:
    """Have the run remember another place of its data."""
    reseal(run / "manifest.json", lambda manifest: manifest["data"].update(path=str(place)))


def test_score_without_the_data_of_the_run_says_what_to_give(trained: Place):
    moved_away(trained.folder / "runs" / "tiny", trained.folder / "gone")
    error = trained.refused("score")
    assert "gone" in error
    assert "--data" in error


def test_score_on_data_that_was_prepared_anew_is_refused(trained: Place, tiny_text: TinyText):
    moved_away(trained.folder / "runs" / "tiny", trained.folder / "data" / "tiny")
    swapped = prepare_arguments(tiny_text, test=tiny_text.valid)
    assert trained.mtkit("-q", *swapped, "--force").status == 0
    assert "prepared anew" in trained.refused("score")


def test_score_on_data_without_a_test_set_is_refused(trained: Place, tiny_text: TinyText):
    arguments = prepare_arguments(tiny_text)
    at = arguments.index("--test")
    without = [*arguments[:at], *arguments[at + 3 :], "--out", "data/untested"]
    assert trained.mtkit("-q", *without).status == 0
    assert "--test" in trained.refused("score", "--data", "data/untested")


# ---------------------------------------------------------------------------------------------
# The program as a process


def test_the_program_is_installed_and_a_mistake_ends_with_status_1(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "mtkit", "train", "--config", "bigg"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert Outcome(done.returncode, done.stdout, done.stderr).error
    (script,) = metadata.entry_points(group="console_scripts", name="mtkit")
    assert script.load() is program


@pytest.mark.parametrize("given", [{}, {"OMP_WAIT_POLICY": "ACTIVE"}, {"GOMP_SPINCOUNT": "5"}])
def test_waiting_threads_sleep_after_a_moment_unless_the_user_sets_how_they_wait(
    given: dict[str, str],
):
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
    script = """
import os, sys
sys.argv = ["mtkit", "--version"]
from mtkit.cli import main
try:
    main()
except SystemExit:
    print(os.environ.get("OMP_WAIT_POLICY"), os.environ.get("GOMP_SPINCOUNT"))
    print("torch" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={k: v for k, v in os.environ.items() if k not in names} | given,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    expected = given or {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "10000"}
    settings = " ".join(str(expected.get(name)) for name in names[:2])
    assert done.stdout.splitlines()[-2:] == [settings, "False"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a\nb", r"a\nb"),
        ("a\tb\x1b[31m", r"a\tb\x1b[31m"),
        ("caf\udce9", r"caf\xe9"),
        ("a\u2028b", r"a\u2028b"),
        ("größe 日本", "größe 日本"),
    ],
)
def test_an_error_is_one_line_for_any_file_name(name: str, shown: str, place: Place):
    assert place.refused("score", name, "--reference", "x") == (
        f"mtkit: error: {shown}: No such file or directory"
    )
    assert f"{shown}: " in place.refused("train", "--config", name)


def test_a_name_that_is_too_long_is_refused_in_one_line(place: Place):
    for arguments in (
        ["train", "--config", "x" * 5000],
        ["train", "--config=demo", "--data", "x" * 5000],
        ["translate", "--run", "x" * 5000],
        ["score", "x" * 5000, "--reference", "y"],
        ["prepare", "x" * 300, "--src-lang=en", "--tgt-lang=de", "--train", "a", "b",
         "--valid", "a", "b"],
    ):  # fmt: skip
        assert "mtkit: error: " in place.refused(*arguments)


def test_a_missing_choice_is_reported_in_one_line(place: Place):
    line = place.refused("export", "run", "out")
    assert "'--format'. Choose from: ctranslate2, huggingface, safetensors" in line


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["in.txt"], "in.txt is a file: give it with --input in.txt"),
        (["a b.txt"], "'a b.txt' is a file: give it with --input 'a b.txt'"),
        (["good morning"], "echo 'good morning' | mtkit translate; a file with --input"),
        (["good", "morning"], "echo 'good morning' | mtkit translate; a file with --input"),
    ],
)
def test_text_or_a_file_as_an_argument_gets_advice(words: list[str], says: str, place: Place):
    for name in ("in.txt", "a b.txt"):
        place.write(name, "one two\n")
    assert says in place.refused("translate", *words)


def test_an_interrupt_ends_with_status_130_and_no_traceback(
    place: Place, monkeypatch: pytest.MonkeyPatch
):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mtkit.prepare.prepare_corpus", interrupted)
    outcome = place.mtkit("prepare", "demo-en-de")
    # Click ends the line on which the terminal shows ^C.
    assert (outcome.status, outcome.out, outcome.err) == (130, "", "\nmtkit: interrupted\n")


@pytest.mark.parametrize("error", [ValueError, RuntimeError, AssertionError])
def test_a_mistake_of_ours_keeps_its_traceback(
    error: type[Exception], place: Place, monkeypatch: pytest.MonkeyPatch
):
    def broken(*_: object, **__: object) -> None:
        raise error("ours")

    monkeypatch.setattr("mtkit.prepare.prepare_corpus", broken)
    monkeypatch.chdir(place.folder)
    monkeypatch.setattr(sys, "argv", ["mtkit", "prepare", "demo-en-de"])
    with pytest.raises(error, match="ours"):
        main()


def test_without_cleaning_every_pair_is_kept_that_is_text_and_not_too_long(
    place: Place, tiny_text: TinyText
):
    odd = "one two\tone two\n---\t---\none\teins eins eins eins eins eins eins eins eins\n"
    odd += "дом\tдом\na\x01b\ta\x01b\n\teins\none two\tone two\n"
    pairs = [line.split("\t") for line in odd.splitlines()]
    files = tuple(place.write(f"odd.{side}", "") for side in ("en", "de"))
    for side, (file, sound) in enumerate(zip(files, tiny_text.train, strict=True)):
        text = sound.read_text(encoding="utf-8") + "".join(f"{pair[side]}\n" for pair in pairs)
        file.write_text(text, encoding="utf-8")
    outcome = place.mtkit(*prepare_arguments(tiny_text, train=files), "--no-cleaning")
    assert outcome.status == 0
    manifest = json.loads((place.folder / "data/tiny/manifest.json").read_text(encoding="utf-8"))
    assert manifest["counts"]["dropped"] == {"empty": 1}


IMPORTS_WHILE_INTERRUPTED = """
import signal, sys, time
from pathlib import Path
from mtkit.__main__ import interrupt_between_imports
signal.signal(signal.SIGINT, interrupt_between_imports)
Path("slow.py").write_text("import signal\\nsignal.raise_signal(signal.SIGINT)\\nDONE = True")
sys.path.insert(0, ".")
try:
    import slow
    print("imported", slow.DONE)
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_waits_until_a_module_is_imported(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS_WHILE_INTERRUPTED],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("imported True\ninterrupted\n", "")


def test_workers_ask_for_their_rank_without_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    # An interrupt asks, and it may come while PyTorch is loaded.
    code = (
        "import sys; from mtkit.cli.console import is_later_worker; "
        "print(is_later_worker(), 'torch' in sys.modules)"
    )
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}.items():
        monkeypatch.setenv(name, value)
    printed = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert printed == "True False\n"
