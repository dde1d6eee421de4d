"""What the documentation says is true: commands exist, examples run as printed."""

import ast
import gzip
import importlib.util
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import number_pairs, random_ending_run
from support.forked import PIPE, Forked, run_mtkit
from support.served import Served

from mtkit.cli import commands
from mtkit.config import Config, load_config, presets
from mtkit.data import PreparedData
from mtkit.model import Transformer, parameter_counts
from mtkit.prepare.filters import REASONS
from mtkit.prepare_config import NoiseConfig, PrepareConfig
from mtkit.run_folder import CONFIDENCE, LEXICON, Run

ROOT = Path(__file__).parent.parent
PAPER = ROOT / "examples/paper/README.md"
SERVE = ROOT / "docs/serve.md"
FILM = """1
00:00:01,000 --> 00:00:02,500
one
two

2
00:00:03,000 --> 00:00:04,000
three
"""
COMING_FROM = ROOT / "docs/coming-from.md"
OWN_CORPUS = ROOT / "examples/own-corpus/README.md"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*.md"))]
GUIDES = sorted(ROOT.glob("examples/*/README.md"))
DOCUMENTS = [*PAGES, *GUIDES]

# Of files whose names begin as settings do.
FILE_ENDINGS = {"py", "h", "cpp", "en", "de", "fr", "tsv", "trees", "slurm", "safetensors"}
# A line with this comment is not run: it needs the network, a GPU, or something else.
NEEDS = "# needs "


def document_name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def each_document(documents: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", documents, ids=document_name)


def blocks(path: Path, language: str) -> list[str]:
    """The code blocks of a document in a language."""
    pattern = rf"^```{language}\n(.*?)^```"
    return re.findall(pattern, path.read_text(encoding="utf-8"), re.DOTALL | re.M)


def statements(block: str) -> Iterator[str]:
    """The lines of a block for the shell; one that is continued, or a here-document, is one."""
    lines = iter(block.replace("\\\n", " ").splitlines())
    for line in lines:
        statement = line
        if here := re.search(r"<<'(\w+)'", line):
            while not statement.endswith(f"\n{here[1]}"):
                statement += f"\n{next(lines)}"
        if statement.strip():
            yield statement


def spans(path: Path) -> list[str]:
    """What is set as code in the text; on the page about other toolkits, what is mtkit's."""
    text = path.read_text(encoding="utf-8")
    if path == COMING_FROM:
        text = re.sub(r"^\| .*? \|", "|", text, flags=re.M)
    return re.findall(r"`([^`\n]+)`", text)


def mtkit_lines(path: Path) -> list[str]:
    """Every mtkit command that a document prints in a block, comments and pipes taken off."""
    text = "\n".join(blocks(path, "sh")).replace("\\\n", " ")
    lines = re.findall(r"(?:^|[|&] *|-- )(mtkit [^#|<>&\n]*)", text, re.MULTILINE)
    return [line.strip() for line in lines]


@pytest.mark.parametrize("name", sorted(commands.commands))
def test_every_command_is_in_the_readme(name):
    assert f"mtkit {name}" in (ROOT / "README.md").read_text(encoding="utf-8")


@each_document(DOCUMENTS)
def test_every_command_line_that_is_printed_parses(path):
    for line in mtkit_lines(path):
        words = shlex.split(line)[1:]
        if words[0] == "--version":
            continue
        command = commands.commands[words[0]]
        # Paths need not exist here, and an option that does not would be an error.
        context = command.make_context(words[0], words[1:], resilient_parsing=False)
        if config := context.params.get("config_name"):
            stem = Path(config).name.removesuffix(".yaml")
            is_written = f"> {config}" in "".join(blocks(path, "sh"))
            assert stem in presets() or is_written or (path.parent / config).is_file(), line


@each_document(DOCUMENTS)
def test_every_option_that_the_text_names_exists(path):
    options = {
        name: {option for parameter in command.params for option in parameter.opts}
        | {option for parameter in command.params for option in parameter.secondary_opts}
        for name, command in commands.commands.items()
    }
    everywhere = set().union(*options.values()) | {"--help", "--version"}
    for span in spans(path):
        words = span.split()
        named = {word.partition("=")[0] for word in words if re.match("--[a-z]", word)}
        if words[0] == "mtkit" and len(words) > 1 and words[1] in options:
            assert named <= options[words[1]] | {"--help"}, span
        elif words[0].startswith("--"):
            assert named <= everywhere, span


@each_document(DOCUMENTS)
def test_every_setting_that_the_text_names_exists(path):
    sections = {name: field.annotation for name, field in Config.model_fields.items()}
    sections["noise"] = NoiseConfig
    for span in spans(path):
        named = re.fullmatch(r"(model|train|decode|noise)\.(\w+)(=\S+)?", span)
        if named and not (path.parent / span).exists() and named[2] not in FILE_ENDINGS:
            assert named[2] in sections[named[1]].model_fields, span
        for setting in re.findall(r"^mtkit prepare .*--set (\w+)=", span):
            assert setting in PrepareConfig.model_fields, span


@each_document(DOCUMENTS)
def test_every_link_leads_to_a_file_and_a_heading(path):
    for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if link.startswith("http"):
            continue
        target, _, anchor = link.partition("#")
        file = path.parent / target if target else path
        assert file.exists(), link
        if anchor:
            assert anchor in anchors(file), link


def anchors(path: Path) -> set[str]:
    """The headings of a page, as links name them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.M)
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_can_be_reached_from_the_readme_in_two_steps():
    linked = {
        (path.parent / link).resolve()
        for path in (ROOT / "README.md", ROOT / "docs" / "README.md")
        for link in re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8"))
    }
    assert {path.resolve() for path in DOCUMENTS[1:]} <= linked


def written_by(program: str) -> Any:
    """A program in `docs/` that writes a page, as a module."""
    spec = importlib.util.spec_from_file_location(program, ROOT / "docs" / f"{program}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_settings_is_what_its_program_writes():
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert page == written_by("make_settings").page(), "run python docs/make_settings.py"


def test_the_page_of_preparing_explains_every_reason_to_drop_a_pair():
    page = (ROOT / "docs" / "prepare.md").read_text(encoding="utf-8")
    table = page.partition("| reason |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| ([^|`]+?) \|", table, re.M) == [*REASONS[1:]]


def test_the_messages_that_are_explained_are_those_of_the_program():
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    known = "\n".join(" ".join(text.split()) for text in messages())
    for cell in re.findall(r"^\| (.*?[^\\]) \| ", page, re.M):
        for quoted in re.findall(r"`([^`]+)`", cell):
            if " " not in quoted or quoted.startswith("mtkit "):
                continue
            # An ellipsis, and a number with its lines, stand for anything.
            parts = re.split(r"…|\d[\d,]*(?: lines)?", quoted)
            pattern = ".*".join(re.escape(part.strip()) for part in parts if part.strip())
            assert re.search(pattern, known), quoted


def test_the_problem_that_the_readme_shows_is_one_that_training_reports():
    (line,) = re.findall(r"possible problem: (.*)", (ROOT / "README.md").read_text("utf-8"))
    known = "\n".join(" ".join(text.split()) for text in messages())
    for part in re.split(r"only \d+|\d+ % of them \".*?\"|\d+|[:;,] ", line):
        assert part.strip() in known, part


def messages() -> Iterator[str]:
    """Every text in the program, with a tilde for what is put into it."""
    for file in (ROOT / "mtkit").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (
                    part.value if isinstance(part, ast.Constant) else "~" for part in node.values
                )
                yield "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_the_pages_install_the_version_of_pytorch_that_is_tested():
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    (tested,) = re.findall(r"^torch==(\S+)$", constraints, re.M)
    for path in (ROOT / "README.md", ROOT / "docs" / "install.md"):
        assert set(re.findall(r"torch==(\S+)", path.read_text(encoding="utf-8"))) == {tested}


def test_the_list_of_files_has_the_docstrings_of_the_modules():
    program = written_by("make_files")
    assert program.PAGE.read_text(encoding="utf-8") == program.page(), (
        "run python docs/make_files.py"
    )


def test_the_page_of_the_architecture_names_modules_that_exist():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    files = {file.relative_to(ROOT / "mtkit").as_posix() for file in (ROOT / "mtkit").rglob("*.*")}
    files |= {file.rpartition("/")[2] for file in files}
    for named in re.findall(r"`([a-z_/]+\.(?:py|html|css|js|tsv))`", text):
        assert named in files, named


def test_the_documents_name_every_preset():
    text = (ROOT / "docs" / "train.md").read_text(encoding="utf-8")
    text += PAPER.read_text(encoding="utf-8")
    for preset in presets():
        assert re.search(rf"[`/ ]{preset}`", text), preset
        load_config(preset)


def test_the_table_of_variants_has_the_parameters_that_the_models_have():
    rows = re.findall(
        r"^\| `(\S+)` \|.*\| ([\d,]+) \| ([\d.]+) \|$", PAPER.read_text("utf-8"), re.M
    )
    variants = {p for p in presets() if p.startswith("table3")}
    assert {name for name, _, _ in rows} == variants | {"base", "big"}
    for name, exact, millions in rows:
        sizes = (37_000, exact.replace(",", ""), 1), (41_000, millions, 1e6)
        for vocab_size, shown, unit in sizes:
            with torch.device("meta"):
                model = Transformer(load_config(name).model, vocab_size, 0)
            count = sum(parameter_counts(model).values()) / unit
            assert float(shown) == pytest.approx(count, abs=0.05), name


def run_shell(
    command: list[str], folder: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command with the programs of this Python first in its path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"PATH": path, "OMP_NUM_THREADS": "1"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


# Whatever a page trains is trained in this size.
SMALL = [
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.d_model=32",
    "model.d_ff=64",
    "model.n_heads=2",
    "train.max_steps=2",
    "train.decay_steps=0",
    "train.batch_tokens=500",
    "train.device_batch_tokens=500",
    "train.batches_per_update=1",
    "train.valid_every=2",
    "train.checkpoint_every=1",
    "decode.max_extra_length=3",
]


def run_in_files(arguments: list[str], folder: Path, given: str | None, output: str) -> None:
    """In a process of its own: mtkit in a folder, with files for its standard streams."""
    os.chdir(folder)
    for path, flags, number in (
        (given or os.devnull, os.O_RDONLY, 0),
        (output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 1),
    ):
        os.dup2(os.open(path, flags), number)
    sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
    run_mtkit(arguments)


def in_small(arguments: list[str]) -> list[str]:
    """The command for the small corpus that the tests have."""
    if "--vocab-size" in arguments:
        # Capitals of noise, and what an untrained model writes, need subwords of their own.
        has_more = any(argument.startswith(("noise.", "back.")) for argument in arguments)
        arguments[arguments.index("--vocab-size") + 1] = "350" if has_more else "300"
    if arguments[0] == "train":
        settings = [s for s in SMALL if "--init-from" not in arguments or s[:6] != "model."]
        arguments += [word for setting in settings for word in ("--set", setting)]
    return arguments


COMMAND = re.compile(r"(?:echo (?P<text>.+?) \| )?mtkit (?P<rest>[^<>|]*)(?P<files>[^|]*)$")


def run_statement(statement: str, folder: Path) -> None:
    """Run a line of a page in a folder."""
    line = statement if "\n" in statement else re.sub(r"\s+#.*", "", statement)
    if not (command := COMMAND.match(line)):
        done = run_shell(["bash", "-euo", "pipefail", "-c", statement], folder)
        assert done.returncode == 0, f"{statement}\n{done.stderr}"
        return
    given = re.search(r"< (\S+)", command["files"])
    output = re.search(r"> (\S+)", command["files"])
    source = given and given[1]
    if command["text"]:
        source = ".echo"
        (folder / source).write_text(" ".join(shlex.split(command["text"])) + "\n", "utf-8")
    error = folder / ".stderr"
    arguments = in_small(shlex.split(command["rest"]))
    target = output[1] if output else ".stdout"
    with Forked(run_in_files, arguments, folder, source, target, err=error) as process:
        process.wait(600)
    assert process.returncode == 0, f"{line}\n{error.read_text('utf-8')}"


@pytest.fixture
def desk(tmp_path, tiny_text, tiny_data, fitted, also_untrained, tree_files) -> Path:
    """A folder with the files, the data and the runs that a page may name."""
    folder = tmp_path / "desk"
    (folder / "examples").mkdir(parents=True)
    for example in ("demo", "paper"):
        shutil.copytree(ROOT / "examples" / example, folder / "examples" / example)
    for split in ("train", "valid", "test"):
        for file in getattr(tiny_text, split):
            shutil.copy(file, folder / file.name)
    for split, file in tree_files.items():
        shutil.copy(file, folder / f"{split}.trees")
    shutil.copy(tree_files["train"], folder / "more.trees")
    mono = number_pairs(20, seed=7)
    (folder / "mono.de.gz").write_bytes(
        gzip.compress("".join(f"{de}\n" for _, de in mono).encode())
    )
    sides = (file.read_text("utf-8").splitlines() for file in tiny_text.train)
    rows = ("\t".join(pair) + "\n" for pair in zip(*sides, strict=True))
    (folder / "train.tsv").write_text("".join(rows), encoding="utf-8")
    (folder / "input.txt").write_text("one two\nthree\n", encoding="utf-8")
    (folder / "film.en.srt").write_text(FILM, encoding="utf-8")
    (folder / "de.po").write_text('msgid "one two"\nmsgstr ""\n', encoding="utf-8")
    shutil.copytree(tiny_data.path, folder / "data" / "demo-en-de")
    shutil.copytree(fitted.path, folder / "runs" / "demo-en-de-demo")
    shutil.copytree(also_untrained.path, folder / "runs" / "first")
    for name in (CONFIDENCE, LEXICON):
        # Both runs have the same vocabulary.
        shutil.copy(fitted.path / name, folder / "runs" / "first")
    shutil.copytree(fitted.path, folder / "runs" / "second")
    return folder


@pytest.mark.slow
@each_document([path for path in DOCUMENTS if path != OWN_CORPUS])
def test_every_line_for_the_shell_runs_as_printed(path, desk):
    lines = [line for block in blocks(path, "sh") for line in statements(block)]
    lines = [line for line in lines if NEEDS not in line]
    if any(line.startswith("mtkit prepare demo-en-de") for line in lines):
        shutil.rmtree(desk / "data" / "demo-en-de")
    if any(line.startswith("mtkit train") and "--dry-run" not in line for line in lines):
        shutil.rmtree(desk / "runs")
    for line in lines:
        run_statement(line, desk)


def run_script(folder: str) -> None:
    """In a process of its own: the script of a folder."""
    os.chdir(folder)
    runpy.run_path("script.py", run_name="__main__")


def test_the_python_of_the_pages_runs_as_printed(desk):
    pages = {path: blocks(path, "python") for path in DOCUMENTS}
    translating, scoring, training = pages.pop(ROOT / "docs" / "python.md")
    (aligning,) = pages.pop(ROOT / "docs" / "align.md")
    (inspecting,) = pages.pop(ROOT / "docs" / "inspect.md")
    # test_walkthrough runs these, and compares what they print.
    del pages[ROOT / "docs" / "walkthrough.md"]
    assert not any(pages.values())
    # The only run that there is when a reader has come so far.
    assert set(re.findall(r'"runs/([^"]+)"', translating)) == {"demo-en-de-demo"}
    output = {}
    for block in (translating, scoring, training, aligning, inspecting):
        (desk / "script.py").write_text(block, encoding="utf-8")
        cpu = {"CUDA_VISIBLE_DEVICES": ""}
        with Forked(run_script, str(desk), environment=cpu, stdout=PIPE, stderr=PIPE) as process:
            out, err = (text.decode() for text in process.communicate(timeout=600))
            status = process.returncode
        assert status == 0, err
        output[block] = out.split("\n")[:-1]
    # Two lines, three translations of each, and two lines.
    assert len(output[translating]) == 2 + 2 * 3 + 2
    # The links, and then each of them.
    links, *each = output[aligning]
    assert len(links.split()) == len(each) > 0
    assert output[inspecting][1].startswith("(1, 2, ")
    (line,) = output[scoring]
    assert line.startswith("chrF2 ")
    assert Run.open(desk / "runs" / "mydata").checkpoints()


def test_the_requests_of_the_page_of_serving_are_answered(desk):
    if shutil.which("curl") is None:
        pytest.skip("there is no curl")
    lines = [line for block in blocks(SERVE, "sh") for line in statements(block)]
    requests = [line for line in lines if line.startswith("curl ")]
    assert len(requests) > 3
    with Served([Run.open(desk / "runs" / "demo-en-de-demo")]) as server:
        for line in requests:
            done = run_shell(
                ["bash", "-c", line.replace("http://127.0.0.1:5000", server.server.address)],
                desk,
                no_proxy="127.0.0.1",
            )
            assert '"translated' in done.stdout, line


@pytest.mark.slow
def test_the_guide_to_your_own_corpus_runs_as_printed(tmp_path):
    folder = tmp_path / "own"
    shutil.copytree(ROOT / "examples/own-corpus", folder)
    (block,) = blocks(folder / "README.md", "sh")
    done = run_shell(["bash", "-euo", "pipefail", "-c", block], folder)
    assert done.returncode == 0, done.stderr
    # Standard output has the dry run, the translation and the two scores, and nothing else.
    assert "\n2 7 1\n" in done.stdout
    bleu, chrf = done.stdout.splitlines()[-2:]
    assert float(bleu.split()[1]) > 95
    assert chrf.startswith("chrF2 ")


@pytest.mark.slow
def test_the_small_table_3_trains_its_rows_and_prints_them(tiny_data, tmp_path):
    script = ["sh", str(PAPER.parent / "table3.sh")]
    settings = {"DATA": str(tiny_data.path), "RUNS": "runs", "SEEDS": "1 2", "STEPS": "1"}
    done = run_shell([*script, "c-n2", "narrow"], tmp_path, **settings)
    assert done.returncode == 0, done.stderr
    heading, _, row, narrow, _, signature = done.stdout.splitlines()
    assert "perplexity" in heading
    assert row.startswith("| `c-n2` | 2 | ")
    # The paper's numbers are at the end.
    assert row.endswith("| 6.11 | 23.7 |")
    assert re.fullmatch(r"\| `narrow` \| 2 \| .* \|  \|  \|", narrow)
    assert row.count("±") == 2
    assert "tok:13a" in signature
    configs = [Run.open(path).config for path in sorted((tmp_path / "runs").iterdir())]
    assert [config.model.decoder_layers for config in configs] == [1, 1, 3, 3]
    assert [config.model.narrow_attention for config in configs] == [False, False, True, True]
    assert [config.train.seed for config in configs] == [1, 2, 1, 2]
    unknown = run_shell([*script, "c-n3"], tmp_path, **settings)
    assert (unknown.returncode, unknown.stderr) == (2, "table3.sh: no row c-n3\n")


# So small a model that a script trains it in a second.
SMALL_SET = " ".join(setting for setting in SMALL if setting[:15] != "train.max_steps")


@pytest.fixture
def small_multi30k(tiny_text, tmp_path) -> Path:
    """A folder with the names of the files of Multi30k, and other text in them."""
    folder = tmp_path / "text"
    folder.mkdir()
    names = {"train": tiny_text.train, "val": tiny_text.valid, "test_2016_flickr": tiny_text.test}
    for name, files in names.items():
        for language, file in zip(("en", "de"), files, strict=True):
            (folder / f"{name}.{language}.gz").write_bytes(gzip.compress(file.read_bytes()))
    return folder


SYNTHETIC = ["back-translation.sh", "distill.sh"]


def run_with_stubs(
    script: str, folder: Path, *, stub: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a script about synthetic data in a folder, where `stub` is the script that `mtkit` is."""
    programs = folder / "programs"
    programs.mkdir()
    for name, text in {"mtkit": stub, "python": "exit 127", "python3": "exit 127"}.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    command = ["sh", str(ROOT / "examples/synthetic" / script)]
    return run_shell(["env", f"PATH={path}", *command], folder, WORK="work", **environment)


@pytest.mark.parametrize("script", SYNTHETIC)
def test_a_script_about_synthetic_data_names_a_file_that_is_missing_and_writes_nothing(
    script, small_multi30k, tmp_path
):
    (small_multi30k / "val.de.gz").unlink()
    done = run_with_stubs(script, tmp_path, TEXT="text")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"{script}: text/val.de.gz: does not exist or cannot be read; set TEXT\n"
    assert not (tmp_path / "work").exists()


def test_the_script_about_back_translation_stops_at_a_file_that_is_cut(small_multi30k, tmp_path):
    file = small_multi30k / "train.de.gz"
    file.write_bytes(file.read_bytes()[:-100])
    done = run_with_stubs("back-translation.sh", tmp_path, TEXT="text", stub="echo mtkit")
    assert done.returncode != 0
    assert done.stdout == ""
    assert "train.de.gz" in done.stderr
    assert not (tmp_path / "work" / "mono.de").exists()


def test_the_script_about_distillation_stops_where_a_translation_fails(small_multi30k, tmp_path):
    fails = 'case "$*" in "-q translate "*) exit 3;; esac'
    done = run_with_stubs("distill.sh", tmp_path, TEXT="text", stub=fails)
    assert (done.returncode, done.stdout) == (3, "beam size 4\n")


@pytest.mark.slow
def test_the_script_about_back_translation_trains_three_models_and_scores_them(
    small_multi30k, tmp_path
):
    settings = {"TEXT": str(small_multi30k), "WORK": "work", "REAL": "100", "VOCAB": "350"}
    script = ["sh", str(ROOT / "examples/synthetic/back-translation.sh")]
    environment = {**settings, "STEPS": "2", "SET": SMALL_SET, "SEARCH": "--sample --top-k 5"}
    done = run_shell(script, tmp_path, **environment)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^work/runs/(\w+)", done.stdout, re.M) == ["real", "back", "tagged"]
    data = {
        name: PreparedData.open(tmp_path / "work" / "data" / name) for name in ("real", "tagged")
    }
    assert [facts["pairs"] for facts in data["tagged"].manifest.sources["train"]] == [100, 100]
    assert [facts.get("tag") for facts in data["tagged"].manifest.sources["train"]] == [None, "bt"]
    assert run_shell(script, tmp_path, **environment).stdout == done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("is_given", [False, True])
def test_the_script_about_distillation_trains_two_students_and_compares_them_with_the_teacher(
    is_given, small_multi30k, tiny_data, tmp_path
):
    settings = {"TEXT": str(small_multi30k), "WORK": "work", "VOCAB": "350", "STEPS": "2"}
    if is_given:
        # A teacher that writes subwords of the vocabulary, which `prepare` accepts as a language.
        settings["RUN"] = str(random_ending_run(tmp_path / "teacher", tiny_data, 5).path)
    script = ["sh", str(ROOT / "examples/synthetic/distill.sh")]
    done = run_shell(script, tmp_path, **settings, SET=SMALL_SET)
    assert done.returncode == 0, done.stderr
    teacher = settings.get("RUN", "work/runs/teacher")
    runs = [teacher, "work/runs/student-real", "work/runs/student-distilled"]
    times = re.findall(r"^[\d.]+ s to translate the test set: (.*)$", done.stdout, re.M)
    assert times == [*runs, *runs]
    assert len(re.findall("^beam size", done.stdout, re.M)) == 2
    assert "tok:13a" in done.stdout
