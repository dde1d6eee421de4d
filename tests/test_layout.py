"""The package's order: which module may import which, and where an outside library lives."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import mtkit

PACKAGE = Path(mtkit.__file__).parent

FLOORS = {
    "cli": 9,
    "train": 8,
    "trainer": 7,
    "report": 7,
    "progress": 4,
    "journal": 5,
    "export": 7,
    "audit": 6,
    "prepare": 5,
    "sources": 4,
    "translate": 6,
    "pool": 5,
    "decoding": 4,
    "batches": 4,
    "dropout": 4,
    "corpora": 3,
    "demo": 3,
    "data": 3,
    "checkpoint": 3,
    "inference": 3,
    "model": 2,
    "sampling": 3,
    "search": 2,
    "tokenizer": 2,
    "encoder": 3,
    "words": 1,
    "score": 2,
    "cost": 2,
    "loss": 1,
    "findings": 2,
    "config": 1,
    "distributed": 2,
    "devices": 1,
    "page": 1,
    "run_page": 2,
    "data_page": 2,
    "sentences": 1,
    "job": 2,
    "processes": 1,
    "cleaning": 2,
    "files": 1,
    "streams": 1,
    "errors": 0,
}

HOMES = {
    "click": {"cli"},
    "yaml": {"config"},
    # Each record is defined where its file is.
    "pydantic": {"config", "files", "data", "checkpoint", "trainer", "job", "prepare"},
    "sacrebleu": {"score"},
    "sentencepiece": {"tokenizer"},
    "torch.distributed": {"distributed"},
    "tensorboardX": {"journal"},
    "matplotlib": {"page"},
    "jinja2": {"page"},
    "datasets": {"corpora"},
    "pyarrow": {"sources"},
    "huggingface_hub": {"corpora"},
    "xxhash": {"cleaning"},
    "langcodes": {"cleaning"},
    "regex": {"cleaning"},
    "ctranslate2": {"export"},
    "sentencex": {"sentences"},
    "transformers": {"export"},
    "pickle": set(),
    "dill": set(),
    "cloudpickle": set(),
    "shelve": set(),
    "marshal": set(),
    "joblib": set(),
}

FILES = sorted(PACKAGE.glob("*.py"))
# These two are not on a floor: the door for `import mtkit` and the one for `python -m mtkit`.
DOORS = {"__init__", "__main__"}


def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), filename=file.name)


def imported(tree: ast.Module) -> set[str]:
    """Dotted names of all imports, wherever they stand; `from a import b` gives both a and a.b."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module is not None
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def own_modules(tree: ast.Module) -> set[str]:
    """Modules of this package that are imported, without the package itself."""
    parts = [name.split(".") for name in imported(tree)]
    return {name[1] for name in parts if name[0] == "mtkit" and len(name) > 1 and name[1] in FLOORS}


def calls(tree: ast.Module) -> set[str]:
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


def test_every_module_has_a_floor():
    assert {file.stem for file in FILES} == FLOORS.keys() | DOORS


@pytest.mark.parametrize("name", FLOORS)
def test_a_module_imports_lower_floors_only(name: str):
    not_lower = {
        other
        for other in own_modules(parsed(PACKAGE / f"{name}.py"))
        if FLOORS[other] >= FLOORS[name]
    }
    assert not not_lower


@pytest.mark.parametrize("library", HOMES)
def test_an_outside_library_has_one_home(library: str):
    users = {
        file.stem
        for file in FILES
        for name in imported(parsed(file))
        if name == library or name.startswith(f"{library}.")
    }
    assert users <= HOMES[library]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_nothing_is_printed_past_the_command_line_and_nothing_is_unpickled(file: Path):
    forbidden = {"print", "torch.load", "torch.save", "eval", "exec", "yaml.unsafe_load"}
    assert not calls(parsed(file)) & forbidden


def test_arrays_are_loaded_without_allowing_pickles():
    # np.load refuses pickles unless it is told not to.
    for file in FILES:
        for node in ast.walk(parsed(file)):
            assert not (isinstance(node, ast.keyword) and node.arg == "allow_pickle"), file.name


def test_importing_the_package_loads_no_library():
    # `import mtkit` stands before every command; what it offers is loaded on first use.
    top = parsed(PACKAGE / "__init__.py").body
    direct = {
        alias.name.split(".")[0] for n in top if isinstance(n, ast.Import) for alias in n.names
    }
    direct |= {(n.module or "").split(".")[0] for n in top if isinstance(n, ast.ImportFrom)}
    assert direct <= {"__future__", "importlib", "typing"}
