"""What the documentation says is true: commands exist, examples run as printed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mtkit.cli import commands
from mtkit.config import load_config, presets
from mtkit.data import PreparedData
from mtkit.model import Transformer, parameter_counts
from mtkit.run_folder import Run

ROOT = Path(__file__).parent.parent
PAPER = ROOT / "examples/paper/README.md"
GUIDES = sorted(ROOT.glob("examples/*/README.md"))


def shell_blocks(path: Path) -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```", path.read_text(encoding="utf-8"), re.DOTALL | re.M)


def mtkit_lines(path: Path) -> list[str]:
    """Every mtkit command that a document prints in a block, comments and pipes taken off."""
    text = "\n".join(shell_blocks(path)).replace("\\\n", " ")
    found = re.findall(r"(?:^|[|&] *)(mtkit [^#|<>&\n]*)", text, re.MULTILINE)
    return [line.strip() for line in found]


@pytest.mark.parametrize("name", sorted(commands.commands))
def test_every_command_has_help_that_ends_with_an_example_and_is_in_the_readme(name: str) -> None:
    command = commands.commands[name]
    assert command.help
    assert f"mtkit {name}" in (command.epilog or "")
    for option in command.params:
        assert getattr(option, "help", None) or option.param_type_name == "argument", option.name
    assert f"mtkit {name}" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", [ROOT / "README.md", *GUIDES], ids=lambda p: p.parent.name)
def test_every_command_line_that_is_printed_parses(path: Path) -> None:
    for line in mtkit_lines(path):
        words = line.split()[1:]
        command = commands.commands[words[0]]
        # Paths need not exist here, and an option that does not would be an error.
        context = command.make_context(words[0], words[1:], resilient_parsing=False)
        if config := context.params.get("config_name"):
            stem = Path(config).name.removesuffix(".yaml")
            assert stem in presets() or (path.parent / config).is_file(), line


def test_the_page_of_the_architecture_names_every_file_in_its_room() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    _, ground, *rooms = re.split("^### ", page.partition("## The way of a sentence")[0], flags=re.M)
    shown = {"mtkit": ground} | {room.partition("`")[2].partition("/`")[0]: room for room in rooms}
    for path in (ROOT / "mtkit").rglob("*.py"):
        if not path.name.startswith("__"):
            assert f"`{path.name}`" in shown[path.parent.name], path


def test_the_documents_name_every_preset() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text += PAPER.read_text(encoding="utf-8")
    for preset in presets():
        assert re.search(rf"[`/ ]{preset}`", text), preset
        load_config(preset)


def test_the_table_of_variants_has_the_parameters_that_the_models_have() -> None:
    rows = re.findall(
        r"^\| `(\S+)` \|.*\| ([\d,]+) \| ([\d.]+) \|$", PAPER.read_text("utf-8"), re.M
    )
    assert {name for name, _, _ in rows} == {p for p in presets() if p.startswith("table3")} | {
        "base",
        "big",
    }
    for name, exact, millions in rows:
        for vocab_size, shown, unit in (
            (37_000, exact.replace(",", ""), 1),
            (41_000, millions, 1e6),
        ):
            with torch.device("meta"):
                model = Transformer(load_config(name).model, vocab_size, 0)
            count = sum(parameter_counts(model).values()) / unit
            assert float(shown) == pytest.approx(count, abs=0.05), name


def test_the_readme_links_to_files_that_exist() -> None:
    for document in [ROOT / "README.md", *GUIDES]:
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text(encoding="utf-8")):
            assert target.startswith("http") or (document.parent / target).exists(), target


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


@pytest.mark.timeout(120)
def test_the_python_of_the_readme_runs_as_printed(untrained: Run, tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.M)
    names = re.findall(r'"runs/([^"]+)"', block)
    # The only run that there is when a reader has come so far.
    assert set(names) == {"demo-en-de-demo"}
    shutil.copytree(untrained.path, tmp_path / "runs" / names[0])
    (tmp_path / "script.py").write_text(block, encoding="utf-8")
    done = run_shell([sys.executable, "script.py"], tmp_path, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr
    # Two lines, three translations of each, and two lines.
    assert len(done.stdout.split("\n")) == 2 + 2 * 3 + 2 + 1


@pytest.mark.slow
def test_the_guide_to_your_own_corpus_runs_as_printed(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    shutil.copytree(ROOT / "examples/own-corpus", folder)
    (block,) = shell_blocks(folder / "README.md")
    done = run_shell(["bash", "-euo", "pipefail", "-c", block], folder)
    assert done.returncode == 0, done.stderr
    # Standard output has the dry run, the translation and the two scores, and nothing else.
    assert "\n2 7 1\n" in done.stdout
    bleu, chrf = done.stdout.splitlines()[-2:]
    assert float(bleu.split()[1]) > 95
    assert chrf.startswith("chrF2 ")


@pytest.mark.slow
def test_the_small_table_3_trains_its_rows_and_prints_them(
    tiny_data: PreparedData, tmp_path: Path
) -> None:
    script = ["sh", str(PAPER.parent / "table3.sh")]
    settings = {"DATA": str(tiny_data.path), "RUNS": "runs", "SEEDS": "1 2", "STEPS": "1"}
    done = run_shell([*script, "c-n2"], tmp_path, **settings)
    assert done.returncode == 0, done.stderr
    heading, _, row, _, signature = done.stdout.splitlines()
    assert "perplexity" in heading
    assert row.startswith("| `c-n2` | 2 | ")
    # The paper's numbers are at the end.
    assert row.endswith("| 6.11 | 23.7 |")
    assert row.count("±") == 2
    assert "tok:13a" in signature
    configs = [Run.open(path).config for path in sorted((tmp_path / "runs").iterdir())]
    assert [config.model.decoder_layers for config in configs] == [1, 1]
    assert [config.train.seed for config in configs] == [1, 2]
    unknown = run_shell([*script, "c-n3"], tmp_path, **settings)
    assert (unknown.returncode, unknown.stderr) == (2, "table3.sh: no row c-n3\n")
