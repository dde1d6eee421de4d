"""What all commands have in common: help, wrong usage, and the program as a process."""

import json
import os
import random
import re
import shlex
import shutil
import signal
import string
import sys
import textwrap
from importlib import metadata
from unittest.mock import MagicMock, Mock

import click
import pytest
from conftest import number_pairs, slow
from support.command_line import Outcome, Place
from support.program import printed, python, succeeded

from mtkit import __version__, native
from mtkit.__main__ import program
from mtkit.check import fit_pairs
from mtkit.cli import commands
from mtkit.cli.options import GroupedOption
from mtkit.config import Config, presets
from mtkit.prepare.catalogue import CATALOGUE
from mtkit.prepare_config import NoiseConfig, PrepareConfig
from mtkit.run_folder import Run

COMMANDS = [
    *("prepare", "train", "translate", "serve", "align", "check", "inspect", "score", "compare"),
    *("export", "import", "score-trees", "score-alignments", "force-decode"),
]


def test_the_commands_are_those_that_are_promised(place):
    assert sorted(commands.commands) == sorted(COMMANDS)
    out = place.mtkit("--help").out
    for command in COMMANDS:
        assert re.search(rf"^  {command} +\w+", out, re.MULTILINE)
    assert "70 a fault of mtkit" in out
    for shell in ("bash", "zsh", "fish"):
        assert f"_MTKIT_COMPLETE={shell}_source mtkit" in out


def test_help_needs_neither_pytorch_nor_any_other_slow_library():
    code = f"""
import sys
from mtkit.cli import main
for command in {["", *COMMANDS]}:
    sys.argv = ["mtkit", *command.split(), "--help"]
    try:
        main()
    except SystemExit as stop:
        assert stop.code == 0
slow = "torch numpy datasets sentencepiece sacrebleu pydantic ruamel tqdm starlette uvicorn rich"
sys.exit(" ".join(set(slow.split()) & sys.modules.keys()) or 0)
"""
    assert printed("-c", code).count("Usage: mtkit") == 1 + len(COMMANDS)


OTHER_COMMANDS = {"mtkit.cli.prepare", "mtkit.cli.train", "mtkit.cli.export", "mtkit.prepare"}


@pytest.mark.parametrize(
    ("arguments", "unneeded"),
    [
        (
            "translate --run {run} --device cpu",
            {
                "google.protobuf",
                "sacrebleu",
                "mtkit.parsing.trees",
                "mtkit.translate.glossary.terms",
            }
            | {"safetensors", "rich", "mtkit.align", "mtkit.cli.check", "mtkit.cli.score"}
            | {"pydantic", "pydantic_core", "importlib.metadata"},
        ),
        ("score {text} --reference {text}", {"pydantic", "ruamel", "rich", "mtkit.cli.translate"}),
        ("check {text} {text}", {"sacrebleu", "safetensors", "google.protobuf"}),
    ],
    ids=["translate", "score", "check"],
)
def test_a_command_imports_nothing_that_it_does_not_need(arguments, unneeded, tiny_run, tmp_path):
    if reason := arguments.startswith("translate") and native.available():
        pytest.skip(reason)
    (tmp_path / "text").write_text("One line.\n")
    code = """
import sys
from mtkit.cli import main
try:
    main()
except SystemExit as stop:
    assert stop.code == 0
print(*sys.modules, sep="\\n", file=sys.stderr)
"""
    words = arguments.format(run=tiny_run.path, text=tmp_path / "text").split()
    loaded = set(succeeded("-c", code, *words, stdin="1 2 3\n").stderr.splitlines())
    assert f"mtkit.cli.{words[0]}" in loaded
    assert not loaded & (unneeded | OTHER_COMMANDS | {"torch", "datasets"})


def examples(command: str) -> list[str]:
    """The command lines at the end of a command's help."""
    lines = commands.commands[command].get_help(click.Context(commands.commands[command]))
    heading, _, printed = lines.partition("  Examples:\n")
    assert heading
    return textwrap.dedent(printed).replace("\\\n", " ").splitlines()


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_ends_with_examples(command, place, monkeypatch):
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
    trees = (f"(S {' '.join(f'(NN {word})' for word in words)})\n" for words in sentences)
    place.write(f"{name}.trees", "".join(trees))
    rows = (f"{source}\t{other}\n" for source, other in zip(src, tgt, strict=True))
    place.write(f"{name}.tsv", "".join(rows))


@pytest.mark.usefixtures("small_demo")
@pytest.mark.parametrize(
    ("command", "example"),
    # Those of import need a model of other software; tests/convert/test_import_marian.py has such.
    # The first of each command is in `make test`.
    [
        (command, example) if number == 0 else slow(command, example)
        for command in COMMANDS
        for number, example in enumerate(examples(command))
        if command != "import"
    ],
    ids=lambda text: text,
)
def test_the_examples_of_the_help_run_as_printed(
    command, example, place, tiny_data, tiny_run, parser, monkeypatch
):
    if "runs/parser" in example:  # which would be the newest run
        shutil.copytree(parser.path, place.folder / "runs" / "parser")
    # The runs below are of the data with this name.
    for name in ("demo-en-de", "mine", "tiny"):
        shutil.copytree(tiny_data.path, place.folder / "data" / name)
    for name in ("demo-en-de-demo", "mine", "first", "second"):
        shutil.copytree(tiny_run.path, place.folder / "runs" / name)
    if command == "prepare":
        shutil.rmtree(place.folder / "data" / ("mine" if "mine" in example else "demo-en-de"))
        write_words(place, "train", 2000)
        write_words(place, "valid", 20)
        write_words(place, "test", 20)
        write_words(place, "pairs", 2000)
        data = "src_lang: en, tgt_lang: de, train: [train], valid: valid"
        place.write("corpus.yaml", f"{{{data}, settings: {{vocab_size: 300}}}}")
    else:
        for name in ("test.en", "test.de", "output.de", "other.de", "old.de", "new.de"):
            place.write(name, "one two three four five\nsix seven\n")
        place.write("input.en", "one two three four five\nsix seven\n")
        place.write("film.en.srt", "1\n00:00:01,000 --> 00:00:02,000\none two\n")
        place.write("comet.txt", "0.9\n0.8\n")
        place.write("sentences.txt", "the dog sleeps .\n")
        for name in ("output.trees", "gold.trees"):
            place.write(name, "(S (NP (DT the) (NN dog)) (VP (VBZ sleeps)) (. .))\n")
        for name in ("links.txt", "gold.txt"):
            place.write(name, "0-0 1-1\n0-0\n")
    if command == "check" and "--run" in example:
        shutil.copytree(tiny_run.path, place.folder / "runs" / "imported")
        pairs = number_pairs(600, 5)
        for number, name in enumerate(("valid.en", "valid.de")):
            place.write(name, "".join(f"{pair[number]}\n" for pair in pairs))
        fit_pairs(Run.open(place.folder / "runs" / "mine"), pairs, device="cpu")
        # The tiny data have too few pairs to fit a run.
        monkeypatch.setattr("mtkit.check.fit_run", lambda *_, **__: True)
    if command == "export":
        pytest.importorskip("ctranslate2")
    if command == "serve":
        place.write("keys.txt", f"{'0' * 64}\n")
        # It takes no port, and ends at once.
        monkeypatch.setattr("mtkit.serve.listen", MagicMock())
        monkeypatch.setattr("mtkit.serve.Server", lambda *_, **__: Mock(address="x"))
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
    place.done(*words[1:], stdin=stdin)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_in_a_group_of_the_help(command, place):
    _, _, *groups = re.split(r"^(?=\w.*:)", place.mtkit(command, "--help").out, flags=re.MULTILINE)
    shown = [option for group in groups for option in re.findall(r"^  .*?(--[\w-]+)", group, re.M)]
    for parameter in commands.commands[command].params:
        if isinstance(parameter, click.Option):
            assert isinstance(parameter, GroupedOption), parameter.name
            assert shown.count(parameter.opts[0]) >= 1, parameter.name
            assert parameter.help, parameter.name
    assert groups[-1].startswith("Information:\n")
    assert "--help" in groups[-1]
    out = place.mtkit(command, "--help").out
    assert "Options:" not in out
    # The groups have one second column.
    assert {len(columns) for columns in re.findall(r"^(  -.*?  +)\w", out, re.MULTILINE)} == {30}


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("mtkit tr", ["train", "translate"]),
        ("mtkit translate --top", ["--top-k", "--top-p"]),
        ("mtkit score --metric ", ["bleu", "chrf", "chrf++", "ter"]),
    ],
)
def test_a_shell_completes_commands_options_and_values(typed, offered, place, monkeypatch):
    # As the function asks that `_MTKIT_COMPLETE=bash_source mtkit` defines.
    monkeypatch.setenv("_MTKIT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(typed.count(" ")))
    outcome = place.mtkit()
    assert (outcome.status, outcome.err) == (0, "")
    assert [line.split(",")[1] for line in outcome.out.splitlines()] == offered


def test_the_version_is_that_of_the_installed_package(place):
    outcome = place.mtkit("--version")
    assert (outcome.status, outcome.out, outcome.err) == (0, f"mtkit {__version__}\n", "")
    assert metadata.version("mtkit") == __version__


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["tranlsate"], "tranlsate"),
        (["train"], "--config"),
        (
            ["train", "--config", "x", "--device", "tpu"],
            "--device: expected auto, cpu or cuda, not",
        ),
        (["translate", "--beam-size", "0"], "--beam-size: expected a whole number of at least 1,"),
        (
            ["translate", "--top-p", "x"],
            "--top-p: expected a number above 0 and at most 1, not 'x'",
        ),
        (["translate", "--length-penalty", "x"], "--length-penalty: expected a number, not 'x' ("),
        (["translate", "--reject-findings", "x"], "--reject-findings: 'x' is none of loop,"),
        (["translate", "--beams", "4"], "--beams is not an option; did you mean --beam-size?"),
        (["translate", "--beam-size"], "--beam-size requires an argument"),
        (["align", "one.en"], "give TGT (see mtkit align --help)"),
        (["export", "run", "out"], "give --format: ctranslate2, huggingface, "),
        *(
            ([*command.split(), "--workers", "100000"], "at least 1 and at most 1024, not 100000 (")
            for command in ("translate", "serve", "score", "check one two", "prepare demo-en-de")
        ),
        (["serve", "--timeout", "9" * 400], "at least 1 and at most 86400, not 9999"),
        (["prepare"], "--list"),
        (["prepare", "../escaped"], "../escaped"),
        (["prepare", "mine", "--src-lang", "en"], "--tgt-lang"),
        (["prepare", "mine", "--test", "a", "b"], "--train"),
        (["score", "--reference", "ref.txt"], "HYP"),
        (["score", "hyp.txt"], "--reference"),
        (["train", "--config", ""], "--config: is empty; give a path"),
        (["import", "", "out"], "SOURCE: is empty"),
    ],
)
def test_wrong_usage_is_one_line_with_status_2(arguments, word, place):
    outcome = place.mtkit(*arguments)
    assert outcome.status == 2
    assert word in outcome.error
    assert place.files() == {}


@pytest.mark.parametrize(
    "command", ["inspect one --output page.html", "align one.en one.de", "train --config demo"]
)
def test_a_command_for_one_run_refuses_two(command, place):
    outcome = place.mtkit(*command.split(), "--run", "runs/does-not-exist", "--run", "runs/mix")
    assert outcome.status == 2
    assert "--run: give one run, not 2" in outcome.error
    assert place.files() == {}


def test_the_same_run_may_be_given_twice(place):
    # As by the processes that start workers, and by scripts that add to a command.
    outcome = place.mtkit("inspect", "A man.", "--json", "--run", "runs/mix", "--run", "runs/mix/")
    assert outcome.status == 1
    assert "runs/mix: there is no such run folder" in outcome.error


def test_no_command_at_all_shows_the_help(place):
    outcome = place.mtkit()
    assert outcome == place.mtkit("--help")
    assert outcome.status == 0
    assert len(outcome.out.splitlines()) > 20


def test_the_catalogue_is_listed_on_standard_output(place):
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
        ("prepare", "", {"": PrepareConfig, "noise.": NoiseConfig}),
        ("train", "train.", {f"{k}.": f.annotation for k, f in Config.model_fields.items()}),
    ],
)
def test_settings_are_listed_with_their_defaults_and_descriptions(command, prefix, models, place):
    outcome = place.mtkit(command, "--settings")
    assert (outcome.status, outcome.err) == (0, "")
    heading, *rows = outcome.out.splitlines()
    assert heading.split() == ["KEY", "DEFAULT", "DESCRIPTION"]
    listed = {row.split()[0]: re.split("  +", row, maxsplit=2)[1:] for row in rows}
    expected = {
        f"{section}{name}": [json.dumps(field.default), field.description]
        for section, model in models.items()
        for name, field in model.model_fields.items()
        if field.annotation is not NoiseConfig
    }
    assert listed == expected
    assert all(f"{prefix}{key}" in expected for key in (["max_steps"] if prefix else ["max_ratio"]))
    assert place.files() == {}


def test_the_presets_are_listed_with_a_line_about_each(place):
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


# The program as a process


def test_the_program_is_installed_and_a_mistake_ends_with_status_1(tmp_path):
    done = python("-m", "mtkit", "train", "--config", "bigg", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert Outcome(done.returncode, done.stdout, done.stderr).error
    (script,) = metadata.entry_points(group="console_scripts", name="mtkit")
    assert script.load() is program


THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
SETTINGS_OF_THREADS = """
import os, sys
names = sys.argv.pop().split()
sys.argv[1:] = ["--version"]
from mtkit.cli import main
try:
    main()
except SystemExit:
    print(*map(os.environ.get, names), "torch" in sys.modules)
"""


def settings_of_threads(names: tuple[str, ...], given: dict[str, str]) -> list[str]:
    """These variables in a command, of which the user sets some; and whether it loads PyTorch."""
    unset = dict[str, str | None].fromkeys(names)
    out = printed("-c", SETTINGS_OF_THREADS, " ".join(names), **unset | given)
    return out.splitlines()[-1].split()


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="PyTorch may use OpenBLAS on this CPU")
@pytest.mark.parametrize(
    ("given", "threads"),
    [({}, "1"), ({"OPENBLAS_NUM_THREADS": "2"}, "2"), ({"OMP_NUM_THREADS": "2"}, "None")],
)
def test_numpy_gets_one_thread_unless_the_user_sets_a_number(given, threads):
    assert settings_of_threads(THREADS, given)[0] == threads


@pytest.mark.parametrize("given", [{}, {"OMP_WAIT_POLICY": "ACTIVE"}, {"GOMP_SPINCOUNT": "5"}])
def test_waiting_threads_sleep_after_a_moment_unless_the_user_sets_how_they_wait(given):
    policy, spins, *_, is_loaded = settings_of_threads(WAITING, given)
    expected = given or {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "10000"}
    assert [policy, spins] == [str(expected.get(name)) for name in WAITING[:2]]
    assert is_loaded == "False"


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
def test_an_error_is_one_line_for_any_file_name(name, shown, place):
    assert place.refused("score", name, "--reference", "x") == (
        f"mtkit: error: {shown}: No such file or directory"
    )
    assert f"{shown}: " in place.refused("train", "--config", name)


def test_a_name_that_is_too_long_is_refused_in_one_line(place):
    for arguments in (
        ["train", "--config", "x" * 5000],
        ["train", "--config=demo", "--data", "x" * 5000],
        ["translate", "--run", "x" * 5000],
        ["score", "x" * 5000, "--reference", "y"],
        ["prepare", "x" * 300, "--src-lang=en", "--tgt-lang=de", "--train", "a", "b",
         "--valid", "a", "b"],
    ):  # fmt: skip
        assert "mtkit: error: " in place.refused(*arguments)


@pytest.mark.parametrize("words", [["in.txt", "a b.txt"], ["."], ["good", "morning"]])
def test_text_or_several_files_as_arguments_get_advice(words, place):
    for name in ("in.txt", "a b.txt"):
        place.write(name, "one two\n")
    error = place.refused("translate", *words)
    assert f"{shlex.quote(' '.join(words))} is not one file that exists; text comes from" in error


@pytest.mark.parametrize("name", ["missing.docx", "missing.txt", "a/missing.md.gz"])
def test_a_missing_file_is_refused_the_same_in_both_ways(name, trained):
    outcomes = [
        trained.mtkit("translate", *given, "--output", f"out-{name.replace('/', '-')}")
        for given in ([name], ["--input", name])
    ]
    assert {outcome.status for outcome in outcomes} == {1}
    assert outcomes[0].err == outcomes[1].err
    assert name in outcomes[0].err


PATHS = {"PYTHONPATH": os.pathsep.join(sys.path)}

# Of each error that a command may raise, the exit status and the last line of standard error.
ENDS = """
import os, sys
import click
import mtkit.cli.prepare, mtkit.cli.serve
from mtkit import prepare, serve
from mtkit.__main__ import program
from mtkit.base.errors import LostWorkerError, MtkitError
class Unexpected(Exception):
    pass
_ = prepare.prepare, serve.read_keys, serve.Server  # loads once what each process needs
def raising(error):
    def broken(*_, **__):
        raise error
    return broken
for number, error in enumerate([
    ValueError("ours"), RuntimeError("ours"), AssertionError("ours"), KeyError("ours"),
    Unexpected("ours"), RecursionError("ours"), NotImplementedError("ours"), MemoryError("ours"),
    ModuleNotFoundError("ours"), OSError("ours"), EOFError("ours"), StopIteration("ours"),
    MtkitError("theirs"), LostWorkerError("theirs"), FileNotFoundError(2, "theirs", "a.txt"),
    click.UsageError("theirs"), KeyboardInterrupt(), click.Abort(),
]):
    command = (["prepare", "demo-en-de"], ["serve", "--keys", "keys.txt"])[number % 2]
    pid = os.fork()
    if not pid:
        sys.argv = ["mtkit", *command]
        prepare.prepare = serve.read_keys = raising(error)
        program()
    print(type(error).__name__, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


def test_the_exit_status_tells_a_fault_of_mtkit_from_an_error_that_a_user_can_fix(tmp_path):
    done = python("-c", ENDS, cwd=tmp_path, **PATHS)
    statuses = {
        name: int(status) for name, status in (line.split() for line in done.stdout.splitlines())
    }
    expected = {"MtkitError": 1, "LostWorkerError": 1, "FileNotFoundError": 1, "UsageError": 2}
    expected |= {"KeyboardInterrupt": 130, "Abort": 130}
    assert {name: status for name, status in statuses.items() if status != 70} == expected
    faults = [name for name, status in statuses.items() if status == 70]
    assert len(faults) == 12
    assert done.stderr.count("Traceback") == len(faults)
    assert done.stderr.count("mtkit: error: ") == 4


WITHOUT_A_MODULE = """
import sys
sys.modules[sys.argv.pop(1)] = None
from mtkit.__main__ import program
program()
"""


@pytest.mark.parametrize("module", ["click", "pydantic", "mtkit.cli.console"])
def test_an_incomplete_installation_is_a_fault_too(module, tmp_path):
    arguments = [WITHOUT_A_MODULE, module, "prepare", "demo-en-de"]
    done = python("-c", *arguments, cwd=tmp_path, **PATHS)
    assert done.returncode == 70
    assert "Traceback" in done.stderr


IMPORTS_WHILE_INTERRUPTED = """
import signal, sys, time
from pathlib import Path
from mtkit.__main__ import interrupt_between_imports
number = signal.Signals[sys.argv[1]]
signal.signal(number, interrupt_between_imports)
Path("slow.py").write_text(f"import signal\\nsignal.raise_signal({number})\\nDONE = True")
sys.path.insert(0, ".")
try:
    import slow
    print("imported", slow.DONE)
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_an_interrupt_waits_until_a_module_is_imported(number, tmp_path):
    done = python("-c", IMPORTS_WHILE_INTERRUPTED, number, cwd=tmp_path, **PATHS)
    assert (done.stdout, done.stderr) == ("imported True\ninterrupted\n", "")


STOPPED = """
import os, signal, sys, time
import mtkit.prepare
from mtkit.__main__ import program
from mtkit.check import fit_pairs
number = signal.Signals[sys.argv.pop()]
def stopped(*_, **__):
    os.kill(os.getpid(), number)
    time.sleep(60)
mtkit.prepare.prepare = stopped
sys.argv += ["prepare", "demo-en-de"]
program()
"""


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_a_signal_ends_a_command_with_one_line(number, tmp_path):
    done = python("-c", STOPPED, number, cwd=tmp_path, **PATHS)
    # Click ends the line that a terminal has begun with ^C.
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\nmtkit: interrupted\n")


def test_sigterm_ends_a_worker_at_once(tmp_path):
    # The launcher ends with it the workers that wait for one that has failed.
    worker = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost"}
    done = python("-c", STOPPED, "SIGTERM", cwd=tmp_path, **PATHS, **worker)
    assert done.returncode == -signal.SIGTERM


def test_workers_ask_for_their_rank_without_pytorch():
    # An interrupt asks, and it may come while PyTorch is loaded.
    code = (
        "import sys; from mtkit.cli.console import is_later_worker; "
        "print(is_later_worker(), 'torch' in sys.modules)"
    )
    worker = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}
    assert printed("-c", code, **worker) == "True False\n"


ON_WINDOWS = """
import sys
sys.platform = "win32"
# Windows has no such modules.
sys.modules |= dict.fromkeys(("fcntl", "resource", "termios", "pwd"))
from mtkit.__main__ import program
program()
"""


@pytest.mark.parametrize("argument", ["--help", "translate"])
def test_windows_is_refused_in_one_line(argument, tmp_path):
    done = python("-c", ON_WINDOWS, argument, cwd=tmp_path, **PATHS)
    (line,) = done.stderr.splitlines()
    assert line.startswith("mtkit: error: Windows is not supported; ")
    assert (done.returncode, done.stdout) == (1, "")
