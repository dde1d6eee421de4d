"""What every test may use: a tiny corpus, its prepared folder, a tiny run; and the house rules."""

from __future__ import annotations

import copy
import functools
import json
import logging
import os
import random
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Before PyTorch is loaded: several processes run tests at once, and their threads share the cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Child processes import `support` and this file as the tests do.
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")])
)

import numpy as np
import pytest
import torch
from hypothesis import settings
from support.browser import CHROMIUM, Browser
from support.command_line import Place
from support.native_models import draw, table, to_native  # noqa: F401, fixtures of tests/native
from support.prepared import prepare_trees
from support.runs import new_run
from support.treebank import small_trees

from mtkit import config as config_module
from mtkit import native
from mtkit.base import language_id
from mtkit.base.devices import choose_device
from mtkit.base.files import sha256_of_json
from mtkit.config import Config, DecodeConfig, ModelConfig, TrainConfig, dump_config, parse_config
from mtkit.data import PreparedData
from mtkit.model import Transformer
from mtkit.prepare import Treebank, prepare_files
from mtkit.prepare.catalogue import demo_corpus
from mtkit.prepare.text_faults import FaultCounts
from mtkit.run_folder import CONFIDENCE, Run
from mtkit.run_manifest import DataOrigin, RunManifest, fixed_settings
from mtkit.score import scores
from mtkit.tokenizer import PAD_ID, Tokenizer, Vocabularies
from mtkit.translate import Translator

if TYPE_CHECKING:
    from support.mutations import Subject
    from support.served import Gate, Served
    from support.training import Trainings

    from mtkit.train.report_page import RunFacts

# The same examples every time, and none kept on disk: a test fails for everybody or for nobody.
settings.register_profile("mtkit", derandomize=True, deadline=None, database=None, max_examples=60)
settings.load_profile("mtkit")


# The files that take longest come first, so that none of them is left over for one process.
SLOWEST_FILES = """
distributed import_marian resuming findings_dropped fine_tuning hub glossary breakdowns
translate_command interruptions cli docs translate mutations exporting prepare
gpu_workers
"""
# The files that start processes from one that has imported everything (tests/support/forked.py),
# but for test_distributed.py, which takes as long as all of these.
FORKED_FILES = """
resuming launching auto_tokens breakdowns conditions at_once translate_command hostile
resumable translate native_decoder docs walkthrough library native_translations damaged_models
interruptions
"""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run the files that load the same slow libraries in one process, as all of `convert` do."""
    from xdist.scheduler import LoadFileScheduling

    class LibraryScheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = Path(super()._split_scope(nodeid))
            if file.parent.name == "convert":
                return "convert"
            is_forked = file.stem.removeprefix("test_") in FORKED_FILES.split()
            return "forked" if is_forked else str(file)

    return LibraryScheduling(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Leave bytes out of names of tests: archives hold times, and all workers need one name."""
    return argname if isinstance(val, bytes) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that take longest first, and skip what needs an engine that was not built."""
    rank = {f"test_{name}.py": place for place, name in enumerate(SLOWEST_FILES.split())}
    items.sort(key=lambda item: rank.get(item.path.name, len(rank)))
    reason = native.available()
    for item in items:
        if reason and item.path.parent.name == "native":
            item.add_marker(pytest.mark.skip(reason=f"needs the native engine: {reason}"))
        if item.get_closest_marker("gpu"):
            # What PyTorch warns of on a card that nobody has tried is shown, and hides no result.
            item.add_marker(pytest.mark.filterwarnings("default"))


CPU = torch.device("cpu")

ENGLISH = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
GERMAN = ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"]
GREEK = ["μηδέν", "ένα", "δύο", "τρία", "τέσσερα", "πέντε", "έξι", "επτά", "οκτώ", "εννέα"]

COUNTS = {"train": 200, "valid": 20, "test": 20}

UNTRAINED = Config(
    model=ModelConfig(encoder_layers=1, decoder_layers=2, d_model=32, d_ff=64, n_heads=2),
    # Numbers are compared to the last digits; what is about precision says so.
    train=TrainConfig(precision="fp32"),
    decode=DecodeConfig(beam_size=3, max_extra_length=4, max_source_tokens=60, precision="fp32"),
)


@dataclass(frozen=True)
class TinyText:
    """Files of a small parallel corpus: numbers in English, and backwards in another language."""

    folder: Path
    train: tuple[Path, Path]
    valid: tuple[Path, Path]
    test: tuple[Path, Path]
    tgt_lang: str = "de"

    def prepare_arguments(self) -> dict[str, Any]:
        """What `prepare_files` takes besides a name and a place."""
        return {
            "src_lang": "en",
            "tgt_lang": self.tgt_lang,
            "train": [self.train],
            "valid": self.valid,
            "test": self.test,
            "vocab_size": 300,
        }


def slow(*values: Any) -> Any:
    """A case of a test that is left to `make test-slow`."""
    return pytest.param(*values, marks=pytest.mark.slow)


def changed(config: Config, section: str, **settings: Any) -> Config:
    """The configuration with some settings of a section replaced."""
    part = getattr(config, section).model_copy(update=settings)
    return config.model_copy(update={section: part})


def number_pairs(count: int, seed: int, *, words: list[str] = GERMAN) -> list[tuple[str, str]]:
    """Different pairs such as ("one two three", "drei zwei eins")."""
    rng = random.Random(seed)
    # Each once, in the order in which they come.
    pairs: dict[tuple[str, str], None] = {}
    while len(pairs) < count:
        digits = [rng.randrange(10) for _ in range(rng.randint(2, 8))]
        source = " ".join(ENGLISH[digit] for digit in digits)
        target = " ".join(words[digit] for digit in reversed(digits))
        pairs[source, target] = None
    return list(pairs)


def write_pairs(folder: Path, name: str, pairs: list[tuple[str, str]]) -> tuple[Path, Path]:
    """Write `name.en` and `name.de`, a sentence a line."""
    files = folder / f"{name}.en", folder / f"{name}.de"
    for side, file in enumerate(files):
        file.write_bytes("".join(f"{pair[side]}\n" for pair in pairs).encode())
    return files


def reseal(file: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a JSON file of mtkit as mtkit itself would, with the checksum that goes with it."""
    content = json.loads(file.read_text(encoding="utf-8"))
    del content["checksum"]
    change(content)
    content["checksum"] = sha256_of_json(content)
    file.write_text(json.dumps(content), encoding="utf-8")


def change_settings(run: Path, config: Config) -> None:
    """Have a run folder say that it was made with this configuration."""
    (run / "config.yaml").write_text(dump_config(config), encoding="utf-8")
    settings = fixed_settings(config)
    reseal(run / "manifest.json", lambda manifest: manifest.update(settings=settings))
    claim_checkpoints(run)


def copied_run(run: Run, place: Path) -> Path:
    shutil.copytree(run.path, place)
    return place


def claim_checkpoints(run: Path) -> None:
    """Have the checkpoints in a run folder say that they are of this run."""
    identity = Run.open(run).manifest.identity
    for state in (run / "checkpoints").glob("*/state.json"):
        reseal(state, lambda content: content.update(run=identity))


def relabelled(run: Run, place: Path, **languages: str) -> Run:
    """A copy of a run that says other languages."""
    copied_run(run, place)
    reseal(place / "manifest.json", lambda manifest: manifest["data"].update(languages))
    claim_checkpoints(place)
    return Run.open(place)


def of_directions(run: Run, *directions: tuple[str, str]) -> Run:
    """A run that says from now on that it was trained on these, a source and a target each."""
    pairs = [{"src_lang": src, "tgt_lang": tgt} for src, tgt in directions]
    reseal(run.path / "manifest.json", lambda manifest: manifest["data"].update(directions=pairs))
    return Run.open(run.path)


@pytest.fixture(autouse=True)
def _network_is_forbidden(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse every connection that would leave the machine."""
    if request.node.get_closest_marker("network"):
        return

    def guarded(name: str) -> Any:
        original = getattr(socket.socket, name)

        def call(self: socket.socket, address: Any, *rest: Any) -> Any:
            if isinstance(address, tuple):
                host = str(address[0])
                if host not in ("localhost", "::1", "") and not host.startswith("127."):
                    # Not an OSError, which a client would take for a bad connection.
                    raise AssertionError(f"a test went to the network: {address}")
            return original(self, address, *rest)

        return call

    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, guarded(name))


@pytest.fixture(autouse=True)
def _pages_are_short(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw no charts after every validation, which would take half of a tiny training."""
    if not request.node.get_closest_marker("pages"):
        monkeypatch.setattr("mtkit.train.metrics.run_page", lambda _: "<!doctype html>\n")


@pytest.fixture(autouse=True)
def _logging_is_restored() -> Iterator[None]:
    """The command line configures the package's logger; leave it as it was."""
    package = logging.getLogger("mtkit")
    before = package.level, list(package.handlers), package.propagate
    yield
    package.level, package.handlers, package.propagate = before
    package.setLevel(before[0])


@pytest.fixture(autouse=True, scope="session")
def _runs_are_made_by_one_thread() -> None:
    """Those of fixtures too, which are made before `_one_thread`; resumed, they have equal bits."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _signals_are_heeded() -> None:
    """A shell that starts the tests in the background has them, and their children, ignore some."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True, scope="session")
def _nothing_is_done_twice_or_waited_for() -> Iterator[None]:
    """Leave out what takes a third of a tiny training, and half of a tiny preparation.

    It changes nothing that a test sees.
    """
    parse = functools.cache(config_module._parse_yaml)
    dump, dumped = config_module.dump_yaml, dict[str, str]()
    add_interval, intervals = scores._add_interval, dict[tuple[object, ...], Any]()
    count_faults = FaultCounts.of

    def dump_once(tree: dict[str, Any]) -> str:
        key = repr(tree)
        if key not in dumped:
            dumped[key] = dump(tree)
        return dumped[key]

    def add_interval_once(result: Any, statistics: Any, scorer: Any) -> None:
        key = (scores._seed(), str(scorer.get_signature()), np.array(statistics).tobytes())
        if key not in intervals or key[0] is None:
            add_interval(result, statistics, scorer)
            intervals[key] = vars(result)
        vars(result).update(intervals[key])

    @functools.lru_cache(64)
    def faults_of(pairs: Any, languages: Any, _: object) -> FaultCounts:
        # A test may have the languages of text not be loaded.
        return count_faults(pairs, languages)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config_module, "_parse_yaml", lambda *a, **k: copy.deepcopy(parse(*a, **k)))
        patch.setattr(config_module, "dump_yaml", dump_once)
        patch.setattr(scores, "_add_interval", add_interval_once)
        patch.setattr(FaultCounts, "of", lambda p, q: faults_of(tuple(p), q, language_id._loaded))
        # Against a loss of power.
        patch.setattr(os, "fsync", lambda _: None)
        for kind in (torch.cuda, torch.xpu, torch.mtia):
            if not kind.is_available():
                # PyTorch would keep each seed with the calls that led to it.
                patch.setattr(kind, "manual_seed_all", lambda _: None)
        yield


@pytest.fixture(autouse=True)
def _products_are_computed_as_at_first() -> None:
    """A model that another test has loaded may have chosen another library, on some CPUs."""
    torch.set_float32_matmul_precision("highest")


@pytest.fixture
def in_float64() -> Iterator[None]:
    """New tensors and models are of float64."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """More than one only slows tensors of this size, and may change the order of sums.

    Before each test, because a command may have set another number.
    """
    torch.set_num_threads(1)


@pytest.fixture
def small_demo(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[tuple[str, str]]]:
    """A tenth of the demo corpus in its place: all kinds of its sentences, and less to wait for."""
    small = {split: pairs[:3000] for split, pairs in demo_corpus().items()}
    monkeypatch.setattr("mtkit.prepare.readers.demo_corpus", lambda: small)
    return small


@pytest.fixture(scope="session")
def tiny_text(tmp_path_factory: pytest.TempPathFactory) -> TinyText:
    """200 training, 20 validation and 20 test pairs in files."""
    folder = tmp_path_factory.mktemp("tiny-text")
    files = {
        split: write_pairs(folder, split, number_pairs(count, seed=seed))
        for seed, (split, count) in enumerate(COUNTS.items(), 1)
    }
    return TinyText(folder, **files)


@pytest.fixture(scope="session")
def tiny_data(tiny_text: TinyText, tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    """The tiny corpus, prepared with 300 pieces. Copy the folder before changing it."""
    place = tmp_path_factory.mktemp("tiny-data") / "tiny"
    prepare_files("tiny", place, **tiny_text.prepare_arguments())
    return PreparedData.open(place)


@pytest.fixture(scope="session")
def linked(tiny_text: TinyText, tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    """The tiny corpus, whose target is the source backwards, with links that say so."""
    folder = tmp_path_factory.mktemp("linked")
    lines = tiny_text.train[0].read_text().splitlines()
    links = [
        " ".join(f"{i}-{n - 1 - i}" for i in range(n)) for n in map(len, map(str.split, lines))
    ]
    (folder / "links").write_text("".join(f"{line}\n" for line in links))
    prepare_files(
        "linked", folder / "linked", **tiny_text.prepare_arguments(), alignments=[folder / "links"]
    )
    return PreparedData.open(folder / "linked")


@pytest.fixture(scope="session")
def greek_data(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    """Numbers in English, and backwards in Greek, prepared with 300 pieces for each."""
    folder = tmp_path_factory.mktemp("greek")
    files = {
        split: write_pairs(folder, split, number_pairs(count, seed=seed, words=GREEK))
        for seed, (split, count) in enumerate(COUNTS.items(), 1)
    }
    text = TinyText(folder, **files, tgt_lang="el")
    prepare_files("greek", folder / "greek", **text.prepare_arguments(), shared_vocab=False)
    return PreparedData.open(folder / "greek")


@pytest.fixture(scope="session")
def tree_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """200 training, 20 validation and 20 test trees in files, by the names of the splits."""
    folder = tmp_path_factory.mktemp("tree-files")
    files = {split: folder / f"{split}.trees" for split in COUNTS}
    for seed, (split, count) in enumerate(COUNTS.items(), 1):
        files[split].write_text("".join(f"{tree}\n" for tree in small_trees(count, seed)))
    return files


@pytest.fixture(scope="session")
def tree_data(tree_files: dict[str, Path], tmp_path_factory) -> PreparedData:
    """The trees prepared, with 300 pieces for their words. Copy the folder before changing it."""
    train, valid, test = (Treebank(tree_files[split]) for split in ("train", "valid", "test"))
    place = tmp_path_factory.mktemp("tree-data") / "trees"
    prepare_trees("trees", place, train=[train], valid=valid, test=test, vocab_size=300)
    return PreparedData.open(place)


@pytest.fixture(scope="session")
def tiny_config() -> Config:
    """One layer each and four updates, for tests that need a run and not a good one."""
    return Config(
        model=ModelConfig(encoder_layers=1, decoder_layers=1, d_model=16, d_ff=32, n_heads=2),
        train=TrainConfig(
            max_steps=4,
            batch_tokens=200,
            warmup_steps=4,
            log_every=2,
            valid_every=4,
            checkpoint_every=2,
            precision="fp32",
        ),
        decode=DecodeConfig(max_extra_length=5, average_checkpoints=2, precision="fp32"),
    )


@pytest.fixture(scope="session")
def tiny_run(tiny_data: PreparedData, tiny_config: Config, tmp_path_factory) -> Run:
    """The tiny configuration trained on the tiny data. Copy the folder before changing it."""
    from mtkit.train import assembly as train

    place = tmp_path_factory.mktemp("tiny-run") / "tiny"
    train.run(tiny_config, tiny_data, place, device="cpu", command=["mtkit", "train"])
    return Run.open(place)


@pytest.fixture(scope="session")
def ending_run(tiny_data: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with random weights that ends its sentences, of which hardly one is a tie."""
    return random_ending_run(tmp_path_factory.mktemp("ending") / "ending", tiny_data, 7)


@pytest.fixture(scope="session")
def untrained(tiny_data: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with random weights that writes something else, and never nothing, for each line."""
    place = tmp_path_factory.mktemp("untrained") / "runs" / "untrained"
    return random_run(place, tiny_data, 5, change=speaking)


@pytest.fixture(scope="session")
def fitted(untrained: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """That run with its checks and a forecast of a few numbers. Copy it before changing it."""
    from mtkit.check import fit_pairs
    from mtkit.check.model.confidence import FEATURES

    run = Run.open(copied_run(untrained, tmp_path_factory.mktemp("fitted") / "run"))
    fit_pairs(run, number_pairs(700, 11), device="cpu")
    weights = {"mean log-probability": 5.0, "absolute length": -30.0}
    columns = {"means": 0.0, "deviations": 1.0, "low": -1e3, "high": 1e3}
    by_hand = {name: [value] * len(FEATURES) for name, value in columns.items()}
    by_hand["weights"] = [weights.get(name, 0.0) for name in FEATURES]

    def change(content: dict[str, Any]) -> None:
        forecast = content["directions"][0]["forecast"]
        forecast.update(by_hand, bias=90.0)
        tenths = forecast["quality"]["tenths"]
        # So nothing is corrected.
        for count, tenth in enumerate(tenths, 1):
            tenth["forecast"] = max(other["chrf"] for other in tenths[:count])

    reseal(run.path / CONFIDENCE, change)
    return run


@pytest.fixture(scope="module")
def translator(untrained: Run) -> Translator:
    """Translates with that run, by PyTorch: tests change its model and count what it computes."""
    from support.translators import loaded

    return loaded(untrained)


@pytest.fixture(scope="module")
def exact(untrained: Run) -> Translator:
    """In float64: where a draw falls must not depend on how a CPU rounds in float32."""
    translator = Translator.load(untrained, device="cpu", prepared=False)
    translator.model.double()
    return translator


@pytest.fixture(scope="session")
def also_untrained(tiny_data: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Another such run, of the same subwords."""
    place = tmp_path_factory.mktemp("also-untrained") / "other"
    return random_run(place, tiny_data, 6, change=speaking)


@pytest.fixture(scope="module")
def served(untrained: Run) -> Iterator[Served]:
    """A server with that run, which translates from English to German."""
    from support.served import Served

    with Served([untrained]) as server:
        yield server


@pytest.fixture(scope="module")
def both(untrained: Run, also_untrained: Run, tmp_path_factory) -> Iterator[Served]:
    """A server that translates from English to German and back."""
    from support.served import Served

    place = tmp_path_factory.mktemp("back") / "back"
    back = relabelled(also_untrained, place, src_lang="de", tgt_lang="en")
    with Served([untrained, back]) as server:
        yield server


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Makes the decoding of a server wait."""
    from support.served import Gate

    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture(scope="module")
def plain(untrained: Run) -> Translator:
    """Translates as the server does, by default."""
    return Translator.load(untrained, device="cpu")


@pytest.fixture(scope="session")
def uneven(greek_data: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with random weights whose source has fewer pieces of its own than the target."""
    src, tgt = greek_data.tokenizers()
    smaller = Tokenizer.learn(greek_data.text("valid")[0], len(src) - 20)
    place = tmp_path_factory.mktemp("uneven") / "uneven"
    return random_run(place, greek_data, 5, tokenizers=(smaller, tgt))


@pytest.fixture(scope="session")
def parser(tree_data: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A parser with random weights, which writes hardly anything that is a tree."""
    return random_run(tmp_path_factory.mktemp("parser") / "runs" / "parser", tree_data, 5)


def random_run(
    path: Path,
    data: PreparedData,
    seed: int,
    *,
    config: Config = UNTRAINED,
    tokenizers: tuple[Tokenizer, Tokenizer] | None = None,
    change: Callable[[Transformer, Tokenizer], object] = lambda *_: None,
) -> Run:
    """A run folder of a model as big as the configuration says, with weights of the seed.

    `change` gets the model and the tokenizer of the target.
    """
    torch.manual_seed(seed)
    src, tgt = tokenizers or data.tokenizers()
    model = Transformer(config.model, len(tgt), PAD_ID, None if src is tgt else len(src))
    with torch.no_grad():
        for layer in model.decoder:
            layer.cross_attention.out_proj.weight.mul_(3)  # type: ignore[union-attr,operator]
            layer.cross_attention.q_proj.weight.mul_(2)  # type: ignore[union-attr,operator]
            layer.cross_attention.kv_proj.weight.mul_(2)  # type: ignore[union-attr,operator]
        change(model, tgt)
    origin = DataOrigin(
        path=str(data.path),
        fingerprint=data.fingerprint,
        src_lang=data.src_lang,
        tgt_lang=data.tgt_lang,
        task=data.task,
    )
    run = Run.create(path, config, Vocabularies(src, tgt), manifest=RunManifest(data=origin))
    run.save(1, weights=dict(model.state_dict()), optimizer={}, state={})
    return run


def prefer_text(embedding: torch.Tensor, tokenizer: Tokenizer) -> None:
    """Have a model write only subwords with text of their own: the logits of others are near 0."""
    texts = [tokenizer.decode([token]).strip() for token in range(len(tokenizer))]
    embedding[torch.tensor([text == "" for text in texts])] *= 0.01


def speaking(model: Transformer, tokenizer: Tokenizer) -> None:
    """Have a model translate no line with nothing."""
    prefer_text(model.embedding.weight, tokenizer)


def random_ending_run(
    path: Path, data: PreparedData, seed: int, **given: tuple[Tokenizer, Tokenizer]
) -> Run:
    """A random run that ends its sentences, and writes beginnings of words and little else."""

    def change(model: Transformer, tokenizer: Tokenizer) -> None:
        # These subwords are found again in the text of any of them.
        texts = [tokenizer.decode([token]) for token in range(len(tokenizer))]
        again = [tokenizer.encode(text) == [token] for token, text in enumerate(texts)]
        factors = torch.where(torch.tensor(again), 2.0, 0.1)
        factors[tokenizer.eos_id] = 2.0
        model.embedding.weight.mul_(factors[:, None])

    settings = DecodeConfig(max_extra_length=5, precision="fp32")
    config = UNTRAINED.model_copy(update={"decode": settings})
    return random_run(path, data, seed, config=config, change=change, **given)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """A GPU, and a CPU in its place: a comparison that fails on the CPU too is itself wrong."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("PyTorch sees no CUDA device")
    return choose_device(request.param)


@pytest.fixture(scope="session")
def config(tiny_config: Config) -> Config:
    """Everything that resuming must get right: dropout, micro-batches, a row at each step."""
    return changed(
        tiny_config,
        "train",
        max_steps=6,
        batch_tokens=200,
        device_batch_tokens=80,
        log_every=1,
        valid_every=3,
        checkpoint_every=3,
    )


@pytest.fixture
def trainings(config: Config, tiny_data: PreparedData, tmp_path: Path) -> Trainings:
    """Trainings with that configuration on the tiny data."""
    from support.training import Trainings

    return Trainings(config, tiny_data, tmp_path)


@pytest.fixture
def fine(config: Config) -> Config:
    """Fine-tuning of a tiny model; the model section comes from the run that it starts from."""
    settings = changed(config, "train", schedule="constant", learning_rate=1e-3, warmup_steps=2)
    tree = settings.model_dump() | {"model": {}}
    return parse_config(tree, origin="test")


@pytest.fixture
def tunings(fine: Config, tiny_data: PreparedData, tiny_run: Run, tmp_path: Path) -> Trainings:
    """Trainings that start from the weights of the tiny run, where they are tuned."""
    from support.training import Trainings

    return Trainings(fine, tiny_data, tmp_path, tiny_run)


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> list[RunFacts]:
    """What the pages about runs are given, which are not drawn."""
    given: list[RunFacts] = []

    def page(facts: RunFacts) -> str:
        given.append(facts)
        return ""

    monkeypatch.setattr("mtkit.train.metrics.run_page", page)
    return given


@pytest.fixture
def run(tmp_path: Path, tiny_config: Config, tiny_data: PreparedData) -> Run:
    """A run folder without checkpoints; its configuration averages the two newest."""
    return new_run(tmp_path / "runs" / "one", tiny_config, tiny_data)


@pytest.fixture
def begun(tiny_run: Run, tmp_path: Path) -> Path:
    """A copy of the tiny run, at its last step, 4."""
    folder = tmp_path / "begun"
    shutil.copytree(tiny_run.path, folder)
    return folder


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd) -> Place:
    """An empty working directory."""
    folder = tmp_path / "place"
    folder.mkdir()
    return Place(folder, monkeypatch, capfd)


@pytest.fixture
def prepared(place: Place, tiny_data: PreparedData) -> Place:
    """A working directory with data/tiny."""
    shutil.copytree(tiny_data.path, place.folder / "data" / "tiny")
    return place


@pytest.fixture(scope="session")
def speaking_run(tiny_run: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The tiny run, with weights that never translate a line with nothing."""
    run = Run.open(copied_run(tiny_run, tmp_path_factory.mktemp("speaking") / "tiny"))
    for saved in run.checkpoints():
        weights = saved.load_weights()
        prefer_text(weights["embedding.weight"], run.tokenizers()[1])
        run.save(
            saved.step,
            weights=weights,
            optimizer=saved.load_optimizer(),
            state=saved.load_state(),
            extra=bool(saved.is_extra()),
        )
    return run


@pytest.fixture
def trained(prepared: Place, speaking_run: Run) -> Place:
    """A working directory with data/tiny and runs/tiny, whose translations are never empty."""
    copied_run(speaking_run, prepared.folder / "runs" / "tiny")
    return prepared


@pytest.fixture
def tiny_yaml(place: Place, tiny_run: Run) -> Path:
    """The configuration of the tiny run, outside of the working directory."""
    path = place.folder.parent / "tiny.yaml"
    path.write_text(dump_config(tiny_run.config), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def marian_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a random Marian model, as transformers writes it."""
    from support.marian import write_marian

    folder = tmp_path_factory.mktemp("marian") / "model"
    write_marian(folder)
    return folder


@pytest.fixture
def source(marian_model: Path, tmp_path: Path) -> Path:
    """A copy of that folder, to be damaged."""
    return Path(shutil.copytree(marian_model, tmp_path / "model"))


@pytest.fixture(scope="module")
def folders(tiny_run: Run, tiny_data: PreparedData) -> dict[str, Path]:
    return {"run": tiny_run.path, "data": tiny_data.path}


@pytest.fixture(scope="module")
def subject(tiny_run: Run, tiny_data: PreparedData, tmp_path_factory) -> Subject:
    """Works with folders that have been changed."""
    from support.mutations import Subject

    return Subject(tiny_run, tiny_data, tmp_path_factory.mktemp("mutations"))


@pytest.fixture
def searched_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search for terms never counts as gone wrong, as it does with most random weights."""
    monkeypatch.setattr("mtkit.translate.glossary.placement._went_wrong", lambda *_: False)
