"""The rooms of the package: what may import what, and where an outside library lives."""

import ast
import functools
import graphlib
import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from support.program import printed

import mtkit

PACKAGE = Path(mtkit.__file__).parent

# Which rooms a room may import. Any room may import the ground floor, which is the modules
# outside of rooms; all of them may import `base` and `kernels`, which import nothing above them.
ROOMS = {
    "cli": {
        *("prepare", "train", "translate", "inspect", "check", "convert", "serve"),
        *("align", "parsing", "score", "documents"),
    },
    "prepare": {"check", "align", "parsing"},
    "train": {"check", "translate", "align", "parsing", "score"},
    "translate": {"align", "parsing", "native", "score"},
    "inspect": {"translate", "align", "parsing"},
    "check": {"translate", "align", "score"},
    "convert": {"translate", "align", "check", "score"},
    "serve": {"check", "documents", "translate"},
    "documents": set[str](),
    "align": set[str](),
    "parsing": {"score"},
    "score": set[str](),
    "native": set[str](),
    "kernels": {"base"},
    "base": set[str](),
}
FOUNDATION = {"base", "kernels"}
# The folders inside a room, and which of its own folders each may import; "" is the room itself.
INSIDE = {
    "translate": {
        "search": set[str](),
        "pytorch": {"", "search", "glossary"},
        "glossary": {"", "search", "pytorch"},
        "html": {""},
    },
    "check": {"rules": set[str](), "model": {"", "rules"}},
}
MAX_MODULES = 14
# What `prepare` uses besides `check/rules`: it imports no other room, and never loads PyTorch.
RULES = ("checker", "report", "model.lexicon", "model.linear", "model.coverage", "model.confidence")

HOMES = {
    "click": {"cli"},
    "rich": {"cli.tables", "documents.text"},
    "tqdm": {
        "cli.console",
        "cli.progress",
        "train.progress_meter",
        "prepare.passes",
        "check.model.fit",
    },
    "backports": {"base.text"},
    "compression": {"base.text"},
    "ruamel": {"base.yaml"},
    # Each record is defined where its file is.
    "pydantic": {
        "base.models",
        "config",
        "metrics_rows",
        "prepare_config",
        "convert.untrusted",
        "convert.transformers_folder",
        "convert.marian_npz",
        "base.overrides",
        "base.files",
        "train.checkpoints",
        "prepare.corpus_file",
        "prepare.results",
    },
    # Its error, with a message of our own, and how rules of our own are checked.
    "pydantic_core": {"base.overrides", "base.models"},
    "sacrebleu": {"score"},
    "sacremoses": {"score"},
    # A package for Argos is checked with what Argos decodes with.
    "sentencepiece": {"tokenizer", "base.sentencepiece_model", "convert.argos"},
    "google": {"base.sentencepiece_model"},
    "torch.distributed": {"train.distributed", "train.launcher"},
    "tensorboardX": {"train.metrics"},
    "safetensors": {"checkpoint", "convert.export_run", "convert.transformers_folder"},
    "matplotlib": {"base.html"},
    "jinja2": {"base.html"},
    "markupsafe": {"base.html"},
    "datasets": {"prepare.hub"},
    "pyarrow": {"prepare.readers"},
    "huggingface_hub": {"base.hub_client", "prepare.hub", "convert.import_run"},
    "xxhash": {"prepare.filters", "base.files"},
    "rapidfuzz": {"prepare.held_out"},
    "langcodes": {"base.language_id", "base.scripts", "base.text"},
    "language_data": {"base.language_id"},
    "py3langid": {"base.language_id"},
    "regex": {"base.scripts", "prepare.noise"},
    "ctranslate2": {"convert.ctranslate2"},
    "sentencex": {"base.sentences"},
    "starlette": {"serve"},
    "h11": {"serve"},
    "prometheus_client": {"serve.counters"},
    "uvicorn": {"serve"},
    "transformers": {"convert.huggingface", "convert.huggingface_m2m100"},
    "onnx": {"convert.onnx_graph", "convert.sentence_model"},
    "onnxruntime": {"convert.onnx"},
    "tokenizers": {"convert.onnx", "convert.tokenizer_json"},
    "lxml": {"documents"},
    "markdown_it": {"documents.markdown"},
}
# No module may use these.
UNUSED = ("yaml", "pickle", "dill", "cloudpickle", "shelve", "marshal", "joblib")
HOMES |= {library: set() for library in UNUSED}

# Any module may use these; the last one imports the names of a room on first use.
EVERYWHERE = {"numpy", "torch", "lazy_loader"}

# Modules of fewer than 60 lines that one other module imports, and why they are not a part of it.
SMALL = {
    "serve.web_page": "The page for people, beside the two APIs for programs.",
    "train.loss": "It is the formula of the paper; its faster form is in `kernels`.",
}

FILES = sorted(PACKAGE.rglob("*.py"))
# The doors for `import mtkit` and for `python -m mtkit`: they lead into rooms.
DOORS = {"", "__main__"}


def name_of(file: Path) -> str:
    """`train.trainer` for the module `mtkit.train.trainer`, `train` for the room itself."""
    parts = file.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def room_of(module: str) -> str:
    """The room of a module; "" for the ground floor."""
    room = module.partition(".")[0]
    return room if room in ROOMS else ""


MODULES = {name_of(file): file for file in FILES}


@functools.cache
def parsed(file: Path) -> ast.Module:
    """The code of a module; that of a room also has the imports of its stub."""
    tree = ast.parse(file.read_text(encoding="utf-8"), filename=file.name)
    if (stub := file.with_suffix(".pyi")).exists():
        room = ".".join(["mtkit", *file.parent.relative_to(PACKAGE).parts])
        for node in ast.parse(stub.read_text(encoding="utf-8"), filename=stub.name).body:
            if isinstance(node, ast.ImportFrom):
                node.module, node.level = f"{room}.{node.module}", 0
            tree.body.append(node)
    return tree


@functools.cache
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


@functools.cache
def own_modules(module: str) -> set[str]:
    """Modules of this package that a module imports."""
    names = {
        name.removeprefix("mtkit").removeprefix(".")
        for name in imported(parsed(MODULES[module]))
        if name.split(".")[0] == "mtkit"
    }
    return (names & MODULES.keys()) - {"", module}


def lines_of(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines()


def calls(tree: ast.Module) -> set[str]:
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


def test_the_rooms_are_the_folders():
    assert {room_of(name) for name in MODULES} == ROOMS.keys() | {""}
    inner = {f"{room}/{folder}" for room, folders in INSIDE.items() for folder in folders}
    assert {file.parent.relative_to(PACKAGE).as_posix() for file in FILES} == {".", *ROOMS, *inner}


def test_a_room_with_folders_inside_keeps_each_of_them_small():
    for room in INSIDE:
        for folder in (PACKAGE / room, *(PACKAGE / room / name for name in INSIDE[room])):
            modules = [file for file in folder.glob("*.py") if file.name != "__init__.py"]
            assert len(modules) <= MAX_MODULES, folder


def folder_of(module: str) -> str:
    """The folder inside the room in which a module is; "" for the room itself."""
    _, folder, *rest = [*module.split("."), ""]
    return folder if rest and folder in INSIDE.get(room_of(module), {}) else ""


def test_a_folder_inside_a_room_imports_only_the_folders_that_it_may():
    for module in filter(folder_of, MODULES):
        room, folder = room_of(module), folder_of(module)
        folders = {folder_of(other) for other in own_modules(module) if room_of(other) == room}
        assert folders <= INSIDE[room][folder] | {folder}, module


def test_a_module_imports_only_the_rooms_that_its_room_may():
    for module in MODULES.keys() - DOORS:
        room = room_of(module)
        others = {room_of(other) for other in own_modules(module)} - {room}
        allowed = ROOMS.get(room, set())
        assert others <= (allowed if room in FOUNDATION else allowed | FOUNDATION | {""}), module


def test_what_a_room_uses_of_another_is_what_that_one_exports():
    for module in MODULES.keys() - DOORS:
        own = FOUNDATION | {"", room_of(module)}
        others = {other for other in own_modules(module) if room_of(other) not in own}
        # `mtkit.train`, never `mtkit.train.trainer`.
        assert others <= ROOMS.keys(), module


def test_a_module_imports_the_modules_of_its_room_and_not_the_room():
    # `__init__` of a room imports its modules, so this would be a circle.
    for module in MODULES.keys() - ROOMS.keys():
        room = room_of(module)
        for node in ast.walk(parsed(MODULES[module])) if room else ():
            if isinstance(node, ast.ImportFrom) and node.module == f"mtkit.{room}":
                assert {f"{room}.{alias.name}" for alias in node.names} <= MODULES.keys(), module


def test_imports_go_in_no_circle():
    for room in ("", *ROOMS):
        inside = {name for name in MODULES if room_of(name) == room and name not in DOORS | {room}}
        graphlib.TopologicalSorter({name: own_modules(name) & inside for name in inside}).prepare()


PREPARE = """
import sys
from pathlib import Path
from mtkit.prepare import Corpus, DirectionSources, PrepareOptions
from mtkit.prepare import parallel_files, prepare, write_page
folder = Path({folder!r})
words = ["one", "two", "three", "four", "five", "six"]
text = [f"{{a}} {{b}} {{c}} {{d}}" for a in words for b in words for c in words for d in words]
files = {{}}
for split, part in (("train", text[:1000]), ("valid", text[1000:1100])):
    files[split] = folder / f"{{split}}.en", folder / f"{{split}}.de"
    for file, ending in zip(files[split], ("", " ja")):
        file.write_text("".join(f"{{line}}{{ending}}\\n" for line in part))
if __name__ == "__main__":
    train, valid = (parallel_files(*files[split]) for split in ("train", "valid"))
    corpus = Corpus("mine", [DirectionSources("en", "de", [train], valid)])
    on_finished = lambda data, report: write_page(folder / "page.html", data, report)
    options = PrepareOptions({{"vocab_size": 300}}, workers=2, on_finished=on_finished)
    prepare(corpus, folder / "data", options)
    assert (folder / "page.html").is_file() and "torch" not in sys.modules
"""


def test_preparing_never_loads_pytorch(tmp_path):
    printed("-c", PREPARE.format(folder=str(tmp_path)))


def test_the_rules_import_no_other_room():
    rules = {name for name in MODULES if name.startswith("check.rules.")}
    rules |= {f"check.{name}" for name in RULES}
    for module in rules:
        assert {room_of(other) for other in own_modules(module)} <= {"", "base", "check"}
        inside = {name for name in own_modules(module) if room_of(name) == "check"} - {"check"}
        assert inside <= rules | {"check.rules", "check.model"}


def test_what_needs_no_slow_library_loads_none():
    program = """
import sys, mtkit.check, mtkit.native, mtkit.prepare.hub, mtkit.prepare.readers
mtkit.check.check_block
print(*{"datasets", "huggingface_hub", "pyarrow", "torch"} & {*sys.modules})
import mtkit.train.report_page
print(*{"jinja2", "matplotlib"} & {*sys.modules})
"""
    assert printed("-c", program) == "\n\n"


def test_an_outside_library_has_one_home():
    for library, homes in HOMES.items():
        for module, file in MODULES.items():
            if module not in homes and room_of(module) not in homes:
                names = {f"{name}." for name in imported(parsed(file))}
                assert not any(name.startswith(f"{library}.") for name in names), module


def test_every_outside_library_has_a_home():
    libraries = {name.split(".")[0] for file in FILES for name in imported(parsed(file))}
    outside = libraries - set(sys.stdlib_module_names) - {"mtkit"}
    assert outside - EVERYWHERE - HOMES.keys() == set()


@pytest.mark.skipif(not (PACKAGE.parent / ".git").exists(), reason="not a checkout of git")
def test_no_tracked_file_is_a_symbolic_link():
    # It would lead to a place on one machine.
    listed = subprocess.run(
        ["git", "ls-files", "--stage"], cwd=PACKAGE.parent, capture_output=True, text=True
    )
    assert listed.returncode == 0, listed.stderr
    assert [line for line in listed.stdout.splitlines() if line.startswith("120000 ")] == []


def test_a_small_module_is_imported_by_more_than_one():
    users = {name: [user for user in MODULES if name in own_modules(user)] for name in MODULES}
    small = {
        name
        for name, file in MODULES.items()
        if len(lines_of(file)) < 60 and len(users[name]) == 1 and name not in ROOMS
    }
    assert small == SMALL.keys()


def test_no_file_has_more_than_650_lines():
    assert not {name for name, file in MODULES.items() if len(lines_of(file)) > 650}


def test_nothing_is_printed_past_the_command_line_and_nothing_is_unpickled():
    forbidden = {"print", "torch.load", "torch.save", "eval", "exec", "yaml.unsafe_load"}
    for module, file in MODULES.items():
        allowed = {"torch.load"} if module == "convert.transformers_folder" else set[str]()
        assert calls(parsed(file)) & forbidden <= allowed, module


def test_published_weights_are_loaded_by_a_function_that_reads_nothing_but_weights():
    loads = [
        node
        for node in ast.walk(parsed(MODULES["convert.transformers_folder"]))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load"
    ]
    (only,) = (ast.unparse(load) for load in loads)
    assert only.endswith("weights_only=True)")


def test_arrays_are_loaded_without_allowing_pickles():
    # np.load refuses pickles by default.
    for file in FILES:
        for node in ast.walk(parsed(file)):
            assert not (isinstance(node, ast.keyword) and node.arg == "allow_pickle"), file.name


@pytest.mark.parametrize(
    "package", ["", "align", "check", "parsing", "prepare", "score", "serve", "train", "translate"]
)
def test_a_name_that_is_loaded_on_first_use_is_that_of_the_module_that_it_is_imported_from(package):
    door = importlib.import_module(f"mtkit.{package}".rstrip("."))
    homes = {
        alias.name: node.module or ""
        for node in parsed(MODULES[package]).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert homes.keys() == {*door.__all__}
    for name, home in homes.items():
        assert getattr(door, name) is getattr(importlib.import_module(home), name)
    with pytest.raises(AttributeError, match="attribute missing"):
        _ = door.missing
