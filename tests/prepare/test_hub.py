"""The catalogue, and the real `datasets` client against the imitation hub of `hub.py`."""

import dataclasses
import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from support import hub as hubs

from mtkit.base.errors import MtkitError
from mtkit.prepare.catalogue import CATALOGUE, find_corpus

ROOT = Path(__file__).resolve().parents[2]

# Prints one line of JSON per argument, with what was fetched by split, or the error. An argument is
# hf:…, read from German to English, or the corpus "NAME", or "NAME@SOURCE" to take it from another
# repository.
CLIENT = """
import dataclasses, json, sys
from mtkit.base.errors import MtkitError
from mtkit.prepare.catalogue import find_corpus
from mtkit.prepare.hub import fetch
from mtkit.prepare.readers import parse_source

def fetched(argument):
    if argument.startswith("hf:"):
        return {"one": parse_source(argument, src_lang="de", tgt_lang="en")}
    name, _, source = argument.partition("@")
    corpus = find_corpus(name)
    return fetch(dataclasses.replace(corpus, source=source) if source else corpus)

for argument in sys.argv[1:]:
    try:
        answer = {
            part: {
                "pairs": [[side.decode() for side in pair]
                          for block in split.blocks(700) for pair in zip(*block)],
                "facts": split.facts(), "fixed": split.reading.found,
                "name": split.name, "unit": split.unit,
            }
            for part, split in fetched(argument).items()
        }
    except MtkitError as error:
        answer = {"error": str(error)}
    print(json.dumps(answer))
"""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a client process printed, by argument; an argument given again ends with " again"."""

    answers: dict[str, Any]
    requests: list[str] = dataclasses.field(default_factory=list)

    def pairs(self, name: str, part: str = "one") -> list[tuple[str, str]]:
        return [(src, tgt) for src, tgt in self.answers[name][part]["pairs"]]

    def downloaded(self, repository: hubs.Repository) -> list[str]:
        """The large files of a repository that were asked for, in order."""
        start = f"/resolve/{repository.commit}/"
        gets = [request for request in self.requests if request.startswith("GET ")]
        paths = [path for _, separator, path in (get.partition(start) for get in gets) if separator]
        return [path for path in paths if path.endswith(".parquet")]


def run_client(
    endpoint: str, home: Path, *names: str, first: str = "", **environment: str
) -> Outcome:
    """Fetch in a process of its own, which must print nothing on standard error."""
    home.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", first + CLIENT, *names],
        env=hubs.client_environment(endpoint, home, PYTHONPATH=str(ROOT), **environment),
        cwd=home.parent,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    answers: dict[str, Any] = {}
    for name, line in zip(names, done.stdout.splitlines(), strict=True):
        answers[f"{name} again" if name in answers else name] = json.loads(line)
    return Outcome(answers)


# The client asks again after pauses, which prove nothing.
NO_PAUSES = "import time; time.sleep = lambda _: None"


def on_one_line(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(src.replace("\n", " "), tgt.replace("\n", " ")) for src, tgt in pairs]


def numbered(count: int, first: str, second: str) -> list[tuple[str, str]]:
    return [(f"{first} {i}", f"{second} {i}") for i in range(count)]


# What a text file would mangle: every one of these is one side of one pair.
DIFFICULT = [
    ("Zwei\nZeilen", "two\nlines"),
    ("Trenner\u2028hier\u0085dort", "wide\u2029separators\x1c"),
    (" außen Leerraum\t", "\ufeffmark first"),
    ("Anführung \"so\" \\n 'so'", "C:\\path"),
    ("😀 é e\u0301 ", "\x00"),
    ("", "nothing opposite"),
]
GERMAN_ENGLISH = {
    "train": DIFFICULT + numbered(2500, "Satz", "sentence"),
    "validation": numbered(30, "Probe", "trial"),
    "test": numbered(33, "Prüfung", "test"),
}
ENGLISH_GERMAN = {split: [(en, de) for de, en in pairs] for split, pairs in GERMAN_ENGLISH.items()}
WMT14 = hubs.wmt14_repository({"de-en": GERMAN_ENGLISH, "fr-en": GERMAN_ENGLISH})
OWN_COLUMNS = hubs.wmt14_repository({"de-en": GERMAN_ENGLISH}, column=None)


def repositories() -> dict[str, hubs.Repository]:
    """What the catalogue knows, with something wrong in many, and what a user names (own/…)."""
    small = {split: numbered(40, "a", "b") for split in GERMAN_ENGLISH}
    good = hubs.wmt14_repository({"de-en": small})
    columns = hubs.wmt14_repository({"de-en": small}, column=None)

    def miscounted(repository: hubs.Repository) -> hubs.Repository:
        card = repository.files["README.md"].replace(
            b'"num_examples": 40', b'"num_examples": 41', 1
        )
        return hubs.Repository({**repository.files, "README.md": card})

    def with_words(word: str) -> hubs.Repository:
        # Different text in each, so that the files of one are not those of another.
        return hubs.wmt14_repository({"de-en": {**small, "train": numbered(3000, word, word)}})

    return {
        "wmt/wmt14": WMT14,
        "bentrevett/multi30k": hubs.multi30k_repository(ENGLISH_GERMAN),
        "test/split": hubs.wmt14_repository({"de-en": {"train": small["train"]}}),
        "test/column": hubs.wmt14_repository({"de-en": small}, column="text"),
        "test/card": miscounted(good),
        "test/parquet": hubs.Repository(
            {**good.files, "de-en/test-00000-of-00001.parquet": b"no parquet"}
        ),
        "test/busy": good,
        **{f"test/{word}": with_words(word) for word in ("damaged", "broken", "reset")},
        "own/columns": OWN_COLUMNS,
        "own/several": hubs.wmt14_repository({"de-en": small, "de-fr": small}),
        "own/default": hubs.wmt14_repository(
            {"default": small, "other": small}, languages=["de", "en"]
        ),
        "own/renamed": hubs.wmt14_repository(
            {"de-en": small}, languages=["ger", "eng"], column=None
        ),
        "own/card": miscounted(columns),
        "own/program": hubs.Repository({"program.py": b"raise SystemExit\n"}),
    }


# Each must be fetched.
FETCHED = (
    *("wmt14-en-de", "wmt14-de-en", "multi30k-en-de", "wmt14-de-en@test/reset"),
    *("hf:wmt/wmt14:de-en", "hf:own/columns:de-en:validation", "hf:own/default"),
    *("hf:own/card::validation", "hf:bentrevett/multi30k::validation"),
)
# What the error of each says.
REFUSED = {
    "wmt14-de-en@test/missing": [
        "(127.0.0.1 answered with HTTP 401): check its name, the connection, ",
        "set HF_TOKEN if it is private or gated",
    ],
    "wmt14-de-en@test/split": ["has no split 'validation', only train: it has changed since"],
    "wmt14-de-en@test/column": ["text column 'de' in 'train', only text.de, text.en"],
    "wmt14-de-en@test/card": ["does not have as many pairs as its card says"],
    "wmt14-de-en@test/parquet": ["cannot read test/parquet (de-en) from the Hugging Face hub"],
    "wmt14-de-en@test/busy": ["(127.0.0.1 answered with HTTP 503): check its name, the conn"],
    "wmt14-de-en@test/broken": [
        "cannot fetch test/broken from the Hugging Face hub at http://127.0.0.1:",
        "run the command again, which keeps complete files",
    ],
    "wmt14-de-en@test/damaged": [
        "de-en/train-00000-of-00003.parquet of test/damaged arrived damaged",
        "run the command again",
    ],
    "hf:own/several": ["Config name is missing", "['de-en', 'de-fr']"],
    "hf:wmt/wmt14:de-en:tset": ["no split 'tset', only train, validation, test: a dataset is"],
    "hf:own/renamed": [
        "no text column 'de' in 'train', only ger, eng: a dataset is named as",
        "the columns 'de' and 'en', alone or within a column 'translation'",
    ],
    "hf:own/program": ["Dataset scripts are no longer supported"],
    "hf:own": ["hf:own: write a dataset on the hub as hf:owner/dataset, "],
    "hf:own/.odd": ["cannot read own/.odd from the Hugging Face hub"],
    "hf:wmt/wmt14:de-en:../train": ["write a dataset on the hub as"],
}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The cache of the clients, beside a folder that happens to be called as a repository is."""
    folder = tmp_path_factory.mktemp("corpora")
    (folder / "wmt" / "wmt14").mkdir(parents=True)
    (folder / "wmt" / "wmt14" / "train.txt").write_text("not this one\n")
    return folder / "home"


@pytest.fixture(scope="module")
def outcome(home):
    """All of them fetched in one process, from a hub that is gone afterwards."""
    there = repositories()
    train = "resolve/{}/de-en/train-00000".format
    faults = {
        "datasets/test/busy": hubs.Fault(status=503),
        train(there["test/damaged"].commit): hubs.Fault(corrupt=True, times=1),
        train(there["test/broken"].commit): hubs.Fault(cut_after=5000),
        train(there["test/reset"].commit): hubs.Fault(cut_after=5000, times=1),
    }
    with hubs.Hub(there, faults=faults) as hub:
        # The second time, the damaged file comes whole.
        names = (*FETCHED, *REFUSED, "wmt14-de-en@test/damaged")
        outcome = run_client(hub.endpoint, home, *names, first=NO_PAUSES)
    return dataclasses.replace(outcome, requests=hub.requests)


def test_corpora_arrive_over_http_with_each_side_in_its_place(outcome):
    parts = zip(("train", "valid", "test"), ("train", "validation", "test"), strict=True)
    for part, split in parts:
        there = on_one_line(GERMAN_ENGLISH[split])
        assert outcome.pairs("wmt14-de-en", part) == there
        assert outcome.pairs("wmt14-en-de", part) == [(en, de) for de, en in there]
        assert outcome.pairs("multi30k-en-de", part) == on_one_line(ENGLISH_GERMAN[split])
    # Each file once, for both directions and hf:wmt/wmt14.
    files = outcome.downloaded(WMT14)
    assert sorted(files) == sorted(path for path in WMT14.files if path.startswith("de-en/"))


def test_a_split_names_the_repository_the_configuration_and_the_commit(outcome):
    facts = {"kind": "hub", "config": "de-en", "split": "validation", "weight": 1.0}
    assert outcome.answers["wmt14-en-de"]["valid"]["facts"] == {
        **facts,
        "repository": "wmt/wmt14",
        "revision": WMT14.commit,
    }
    assert outcome.answers["hf:own/columns:de-en:validation"]["one"]["facts"] == {
        **facts,
        "repository": "own/columns",
        "revision": OWN_COLUMNS.commit,
    }


def test_any_dataset_of_the_hub_is_read_by_its_name(outcome):
    record = outcome.answers["hf:wmt/wmt14:de-en"]["one"]
    assert outcome.pairs("hf:wmt/wmt14:de-en") == on_one_line(GERMAN_ENGLISH["train"])
    assert record["fixed"] == {"line break within a sentence": 2}
    assert (record["name"], record["unit"]) == ("wmt/wmt14 de-en train", "row")
    name = "hf:own/columns:de-en:validation"
    assert outcome.pairs(name) == GERMAN_ENGLISH["validation"]
    assert len(outcome.pairs("hf:bentrevett/multi30k::validation")) == 30
    for name in ("hf:own/default", "hf:own/card::validation"):
        assert len(outcome.pairs(name)) == 40


def test_the_files_of_one_split_alone_are_fetched(outcome):
    assert outcome.downloaded(OWN_COLUMNS) == ["de-en/validation-00000-of-00001.parquet"]


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_of_the_hub_or_another_layout_is_one_line(outcome, name):
    error = outcome.answers[name]["error"]
    assert all(part in error for part in REFUSED[name])


def test_a_file_that_arrived_damaged_is_fetched_anew_the_next_time(outcome):
    train = outcome.pairs("wmt14-de-en@test/damaged again", "train")
    assert train == numbered(3000, "damaged", "damaged")


def test_a_download_goes_on_after_a_reset_connection(outcome):
    assert outcome.pairs("wmt14-de-en@test/reset", "train") == numbered(3000, "reset", "reset")


@pytest.fixture
def copy(outcome, home, tmp_path):
    """A copy of the cache, to be damaged, in which own/columns has the validation split alone."""
    shutil.copytree(home, tmp_path / "home", symlinks=True)
    return tmp_path / "home"


def test_a_fetch_with_the_hub_switched_off_uses_the_cache(outcome, copy):
    cached = ["wmt14-en-de", "multi30k-en-de", "hf:wmt/wmt14:de-en"]
    damaged = "hf:own/columns:de-en:validation"
    absent = {
        "wmt14-en-de@other/corpus": "other/corpus (de-en)",
        "hf:wmt/wmt14:de-en:test": "wmt/wmt14 (de-en)",
        damaged: "own/columns (de-en)",
    }
    (file,) = copy.rglob("own___columns/**/*-validation.arrow")
    file.write_bytes(b"damaged")
    again = run_client("http://127.0.0.1:9", copy, *cached, *absent, HF_HUB_OFFLINE="1")
    for name in cached:
        assert again.answers[name] == outcome.answers[name]
    for name, what in absent.items():
        error = again.answers[name]["error"]
        assert f"HF_HUB_OFFLINE is set, and {what} cannot be read from the cache {copy}" in error
        assert "--train and --valid" in error
        # What is said of a dataset that is not in the cache.
        assert ("Couldn't" in error) == (name != damaged)


def test_an_older_damaged_file_of_another_split_is_left_alone(copy):
    (cached,) = copy.rglob("datasets--own--columns/**/validation-*.parquet")
    with hubs.Hub({"own/columns": OWN_COLUMNS}) as there:
        content = cached.read_bytes()
        cached.resolve().write_bytes(content[:-1] + b"?")
        outcome = run_client(there.endpoint, copy, "hf:own/columns:de-en:test")
    assert outcome.pairs("hf:own/columns:de-en:test") == GERMAN_ENGLISH["test"]
    assert cached.exists()


def test_a_hub_without_an_answer_is_named_in_one_line_and_not_asked_often(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
        outcome = run_client(endpoint, tmp_path / "home", "wmt14-en-de", HF_HUB_ETAG_TIMEOUT="1")
        server.setblocking(False)
        # Left to itself, the client asks again and again for minutes.
        with pytest.raises(BlockingIOError):
            [server.accept()[0].close() for _ in range(3)]
    error = outcome.answers["wmt14-en-de"]["error"]
    assert error.startswith(f"cannot fetch wmt/wmt14 from the Hugging Face hub at {endpoint} (")
    for help_with in ("connection", "proxy", "HF_ENDPOINT", "--train and --valid"):
        assert help_with in error


def test_a_full_disk_is_one_line_that_names_the_cache(tmp_path):
    # No file may grow beyond this, which the files to download do: a disk that is full, but gently.
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))"
    splits = hubs.synthetic_splits(lexicon=2000, train=1000, validation=10, test=10)
    with hubs.Hub({"wmt/wmt14": hubs.wmt14_repository({"de-en": splits})}) as hub:
        outcome = run_client(hub.endpoint, tmp_path / "home", "wmt14-en-de", first=limit)
    error = outcome.answers["wmt14-en-de"]["error"]
    assert error.startswith(f"cannot write wmt/wmt14 to the cache {tmp_path / 'home'}: make room")


def test_the_catalogue_knows_every_corpus_in_both_directions():
    assert sorted(corpus.name for corpus in CATALOGUE) == sorted(
        f"{family}-{direction}"
        for family, other in (("wmt14", "de"), ("wmt14", "fr"), ("multi30k", "de"), ("demo", "de"))
        for direction in (f"en-{other}", f"{other}-en")
    )
    for corpus in CATALOGUE:
        other = dataclasses.replace(corpus, src_lang=corpus.tgt_lang, tgt_lang=corpus.src_lang)
        assert other in CATALOGUE


def test_the_vocabularies_of_wmt14_are_those_of_the_paper():
    assert find_corpus("wmt14-en-de").vocab_size == find_corpus("wmt14-de-en").vocab_size == 37_000
    assert find_corpus("wmt14-en-fr").vocab_size == find_corpus("wmt14-fr-en").vocab_size == 32_000


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("wmt14-ende", "wmt14-en-de"),
        ("wmt14_de_en", "wmt14-de-en"),
        ("Multi30k-EN-DE", "multi30k-en-de"),
        ("demo", "demo-en-de"),
        ("qqq", ""),
    ],
)
def test_an_unknown_name_suggests_the_nearest_if_there_is_one(typed, meant):
    hint = rf"did you mean '{meant}'\? " if meant else ""
    with pytest.raises(MtkitError, match=f"corpus '{typed}': {hint}`mtkit prepare --list`"):
        find_corpus(typed)
