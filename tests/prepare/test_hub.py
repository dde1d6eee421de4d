"""The catalogue, and the real `datasets` client against the imitation hub of `hub.py`."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from support.hub import (
    Fault,
    Hub,
    HubFile,
    Repository,
    Splits,
    client_environment,
    multi30k_repository,
    synthetic_splits,
    wmt14_repository,
)

from mtkit.base.errors import MtkitError
from mtkit.prepare.catalogue import CATALOGUE, find_corpus
from mtkit.prepare.hub import waiting_noted

ROOT = Path(__file__).resolve().parents[2]

# Prints one line of JSON per argument: the corpus "NAME", or "NAME@SOURCE" to take it from another
# repository, as it was fetched; or the error. "connections" says how often it has tried to connect.
CLIENT = """
import dataclasses, json, socket, sys, tracemalloc
from mtkit.prepare.hub import fetch
from mtkit.prepare.catalogue import find_corpus
from mtkit.base.errors import MtkitError

def pairs(split):
    for block in split.blocks(1000):
        yield from zip(*([side.decode() for side in sides] for sides in block))

connections = 0
connect = socket.socket.connect

def counted(*arguments):
    global connections
    connections += 1
    return connect(*arguments)

socket.socket.connect = counted
for name, _, source in (argument.partition("@") for argument in sys.argv[1:]):
    corpus = find_corpus(name)
    if source:
        corpus = dataclasses.replace(corpus, source=source)
    try:
        answer = {}
        for part, split in fetch(corpus).items():
            tracemalloc.start()
            read = sum(1 for _ in pairs(split))
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            answer[part] = {"pairs": list(pairs(split)), "read": read, "peak": peak,
                            "facts": split.facts()}
    except MtkitError as error:
        answer = {"error": str(error)}
    print(json.dumps(answer | {"connections": connections}))
"""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a client process printed, by argument."""

    answers: dict[str, Any]
    stderr: str
    requests: list[str] = dataclasses.field(default_factory=list)

    def pairs(self, name: str, part: str) -> list[tuple[str, str]]:
        return [(src, tgt) for src, tgt in self.answers[name][part]["pairs"]]

    def error(self, name: str) -> str:
        message = self.answers[name]["error"]
        assert "\n" not in message
        return message


def run_client(
    endpoint: str,
    home: Path,
    *names: str,
    first: str = "",
    client: str = CLIENT,
    **environment: str,
) -> Outcome:
    home.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", first + client, *names],
        env=client_environment(endpoint, home, PYTHONPATH=str(ROOT), **environment),
        cwd=home.parent,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    return Outcome(dict(zip(names, answers, strict=True)), done.stderr)


# The client asks again after pauses, which prove nothing.
NO_PAUSES = "import time; time.sleep = lambda _: None"

# The same for what `mtkit prepare` takes as hf:…, read from German to English.
HUB_CLIENT = """
import json, sys
from mtkit.base.errors import MtkitError
from mtkit.prepare.readers import parse_source
for name in sys.argv[1:]:
    try:
        source = parse_source(name, src_lang="de", tgt_lang="en")
        pairs = [[side.decode() for side in pair]
                 for block in source.blocks(700) for pair in zip(*block)]
        answer = {"pairs": pairs, "facts": source.facts(), "fixed": source.reading.found,
                  "name": source.name, "unit": source.unit}
    except MtkitError as error:
        answer = {"error": str(error)}
    print(json.dumps(answer))
"""


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


GERMAN_ENGLISH = Splits(
    train=DIFFICULT + numbered(2500, "Satz", "sentence"),
    validation=numbered(30, "Probe", "trial"),
    test=numbered(33, "Prüfung", "test"),
)
ENGLISH_GERMAN = Splits(
    **{split: [(en, de) for de, en in pairs] for split, pairs in GERMAN_ENGLISH.present().items()}
)
LARGE = synthetic_splits(train=20_000, validation=10, test=10, lexicon=2000)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpora")
    # A folder of the user's that happens to be called as the repository is.
    (folder / "wmt" / "wmt14").mkdir(parents=True)
    (folder / "wmt" / "wmt14" / "train.txt").write_text("not this one\n")
    return folder


@pytest.fixture(scope="module")
def fetched(workplace: Path) -> Outcome:
    """Four corpora fetched in one process, from a hub that is gone afterwards."""
    repositories = {
        "wmt/wmt14": wmt14_repository({"de-en": GERMAN_ENGLISH, "fr-en": LARGE}),
        "bentrevett/multi30k": multi30k_repository(ENGLISH_GERMAN),
    }
    with Hub(repositories) as hub:
        names = ["wmt14-en-de", "wmt14-de-en", "multi30k-en-de", "wmt14-fr-en"]
        outcome = run_client(hub.endpoint, workplace / "home", *names)
    return dataclasses.replace(outcome, requests=hub.requests)


def test_wmt14_arrives_over_http_with_each_side_in_its_place(fetched: Outcome) -> None:
    parts = zip(("train", "valid", "test"), ("train", "validation", "test"), strict=True)
    for part, split in parts:
        there = on_one_line(GERMAN_ENGLISH.present()[split])
        assert fetched.pairs("wmt14-de-en", part) == there
        assert fetched.pairs("wmt14-en-de", part) == [(en, de) for de, en in there]
    downloads = [request for request in fetched.requests if request.startswith("GET /storage/")]
    assert len(downloads) == 2 * (3 + 1 + 1)  # two configurations, each file of them once


def test_multi30k_arrives_from_its_three_json_files(fetched: Outcome) -> None:
    assert fetched.pairs("multi30k-en-de", "train") == on_one_line(ENGLISH_GERMAN.train)
    assert fetched.pairs("multi30k-en-de", "valid") == ENGLISH_GERMAN.validation
    assert fetched.pairs("multi30k-en-de", "test") == ENGLISH_GERMAN.test


def test_a_split_names_the_repository_the_configuration_and_the_commit(fetched: Outcome) -> None:
    repository = wmt14_repository({"de-en": GERMAN_ENGLISH, "fr-en": LARGE})
    assert fetched.answers["wmt14-en-de"]["valid"]["facts"] == {
        "kind": "hub",
        "repository": "wmt/wmt14",
        "config": "de-en",
        "split": "validation",
        "revision": repository.commit,
        "weight": 1.0,
    }


def test_pairs_are_read_in_bounded_memory(fetched: Outcome) -> None:
    train = fetched.answers["wmt14-fr-en"]["train"]
    text = sum(len(side.encode()) for pair in train["pairs"] for side in pair)
    assert train["read"] == 20_000
    # A batch of 1,000 pairs at a time: a twentieth of the text and what Python adds to a string.
    assert train["peak"] < text / 5


def test_nothing_appears_on_standard_error_unless_it_is_a_terminal(fetched: Outcome) -> None:
    assert fetched.stderr == ""


def test_progress_bars_appear_on_a_terminal(tmp_path: Path) -> None:
    repositories = {"bentrevett/multi30k": multi30k_repository(ENGLISH_GERMAN)}
    terminal, stderr = os.openpty()
    termios.tcsetwinsize(stderr, (24, 80))
    with Hub(repositories) as hub, os.fdopen(terminal, "rb", buffering=0) as screen:
        environment = client_environment(hub.endpoint, tmp_path, PYTHONPATH=str(ROOT))
        command = [sys.executable, "-c", CLIENT, "multi30k-de-en"]
        with subprocess.Popen(
            command, env=environment, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=stderr
        ) as client:
            os.close(stderr)
            shown = b""
            try:
                while chunk := screen.read(4096):
                    shown += chunk
            except OSError:  # how Linux says that the other end was closed
                pass
    assert client.returncode == 0
    assert b"Generating train split" in shown


def test_a_fetch_with_the_hub_switched_off_uses_the_cache(
    fetched: Outcome, workplace: Path
) -> None:
    again = run_client(
        "http://127.0.0.1:9",
        workplace / "home",
        "wmt14-en-de",
        "multi30k-en-de",
        "wmt14-en-de@other/corpus",
        HF_HUB_OFFLINE="1",
    )
    for name in ("wmt14-en-de", "multi30k-en-de"):
        for part in ("train", "valid", "test"):
            for fact in ("pairs", "facts"):
                assert again.answers[name][part][fact] == fetched.answers[name][part][fact]
    error = again.error("wmt14-en-de@other/corpus")
    assert "HF_HUB_OFFLINE is set and other/corpus (de-en) was not downloaded before" in error
    assert "--train and --valid" in error
    assert again.stderr == ""


def test_an_unreachable_hub_is_named_in_one_line_and_not_asked_often(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        endpoint = f"http://127.0.0.1:{closed.getsockname()[1]}"
    outcome = run_client(endpoint, tmp_path / "home", "wmt14-en-de")
    error = outcome.error("wmt14-en-de")
    assert error.startswith(f"cannot fetch wmt/wmt14 from the Hugging Face hub at {endpoint} (")
    for help_with in ("connection", "proxy", "HF_ENDPOINT", "--train and --valid"):
        assert help_with in error
    # Left to itself, the client asks again and again for minutes.
    assert outcome.answers["wmt14-en-de"]["connections"] in (1, 2)
    assert outcome.stderr == ""


def test_a_hub_that_never_answers_is_given_up(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        outcome = run_client(endpoint, tmp_path / "home", "wmt14-en-de", HF_HUB_ETAG_TIMEOUT="1")
    assert f"cannot fetch wmt/wmt14 from the Hugging Face hub at {endpoint}" in outcome.error(
        "wmt14-en-de"
    )
    assert outcome.answers["wmt14-en-de"]["connections"] in (1, 2)


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Repositories with something wrong, each fetched in one and the same process."""
    small = Splits(*(numbered(40, "a", "b") for _ in range(3)))
    good = wmt14_repository({"de-en": small})
    card = good.files["README.md"].content
    first = "de-en/train-00000-of-00003.parquet"
    # Different text in each, so that the files and the faults of one are not those of another.
    damaged, broken, failing, reset = (
        wmt14_repository({"de-en": dataclasses.replace(small, train=numbered(3000, word, word))})
        for word in ("damaged", "broken", "failing", "reset")
    )
    repositories = {
        "test/gated": dataclasses.replace(good, gated=True),
        "test/config": wmt14_repository({"cs-en": small}),
        "test/split": wmt14_repository({"de-en": dataclasses.replace(small, test=None)}),
        "test/column": wmt14_repository({"de-en": small}, column="text"),
        "test/language": wmt14_repository({"de-en": small}, languages=["ger", "eng"]),
        "test/card": Repository(
            {**good.files, "README.md": HubFile(card.replace(b"examples: 40", b"examples: 41"))}
        ),
        "test/parquet": Repository(
            {**good.files, "de-en/test-00000-of-00001.parquet": HubFile(b"no parquet", large=True)}
        ),
        "test/empty": Repository({"README.md": HubFile(b"# Nothing here\n")}),
        "test/busy": good,
        "test/damaged": damaged,
        "test/broken": broken,
        "test/failing": failing,
        "test/reset": reset,
    }
    faults = {
        "datasets/test/busy": Fault(status=503),
        f"/storage/{damaged.files[first].sha256}": Fault(corrupt=True, times=1),
        f"/storage/{broken.files[first].sha256}": Fault(cut_after=5000),
        f"/storage/{reset.files[first].sha256}": Fault(cut_after=5000, times=1),
        f"/storage/{failing.files[first].sha256}": Fault(status=403),
    }
    names = [f"wmt14-de-en@{name}" for name in ("test/missing", *repositories)]
    home = tmp_path_factory.mktemp("troubled") / "home"
    with Hub(repositories, faults=faults) as hub:
        outcome = run_client(hub.endpoint, home, *names, first=NO_PAUSES)
        # The second time, the damaged file comes whole.
        again = run_client(hub.endpoint, home, "wmt14-de-en@test/damaged")
    assert outcome.stderr == again.stderr == ""
    answers = {name.partition("@")[2]: answer for name, answer in outcome.answers.items()}
    answers["test/damaged, again"] = again.answers["wmt14-de-en@test/damaged"]
    return Outcome(answers, "", hub.requests)


@pytest.mark.parametrize(
    ("repository", "says"),
    [
        ("test/missing", "has no dataset test/missing, or it is private or gated (HTTP 401): "),
        ("test/gated", "or it is private or gated (Dataset 'test/gated' is a gated dataset"),
        ("test/config", "has no configuration 'de-en', only cs-en: it has changed since"),
        ("test/split", "has no split 'test', only train, validation"),
        ("test/column", "has no text column 'translation.de' in 'train', only text.de, text.en"),
        ("test/language", "has no text column 'translation.de' in 'train', only translation."),
        ("test/card", "does not have as many pairs as its card says"),
        ("test/parquet", "cannot read test/parquet (de-en) from the Hugging Face hub"),
        ("test/empty", "doesn't contain any data files"),
        ("test/busy", "(127.0.0.1 answered with HTTP 503): check the connection"),
        ("test/failing", "(localhost answered with HTTP 403): check the connection"),
        ("test/broken", "cannot fetch test/broken from the Hugging Face hub at http://127.0.0.1:"),
        ("test/broken", "run the command again, which keeps complete files"),
    ],
)
def test_a_hub_that_refuses_or_has_changed_is_reported_in_one_line(
    troubled: Outcome, repository: str, says: str
) -> None:
    error = troubled.error(repository)
    assert says in error
    assert repository in error


def test_a_file_that_arrives_damaged_is_refused_and_fetched_anew_the_next_time(
    troubled: Outcome,
) -> None:
    error = troubled.error("test/damaged")
    assert "de-en/train-00000-of-00003.parquet of test/damaged arrived damaged" in error
    assert "run the command again" in error
    train = troubled.pairs("test/damaged, again", "train")
    assert train == numbered(3000, "damaged", "damaged")


def test_a_download_goes_on_after_a_reset_connection(troubled: Outcome) -> None:
    assert troubled.pairs("test/reset", "train") == numbered(3000, "reset", "reset")


def test_a_full_disk_is_one_line_that_names_the_cache(tmp_path: Path) -> None:
    # No file may grow beyond this, which the files to download do: a disk that is full, but gently.
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))"
    splits = synthetic_splits(train=1000, lexicon=2000)
    with Hub({"wmt/wmt14": wmt14_repository({"de-en": splits})}) as hub:
        outcome = run_client(hub.endpoint, tmp_path / "home", "wmt14-en-de", first=limit)
    error = outcome.error("wmt14-en-de")
    assert error.startswith(f"cannot write wmt/wmt14 to the cache {tmp_path / 'home'}: make room")
    assert outcome.stderr == ""


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Datasets that no catalogue knows, by the names that `prepare` takes, from one hub."""
    small = Splits(train=numbered(40, "Satz", "a"), validation=numbered(3, "P", "b"), test=None)
    alone = wmt14_repository({"de-en": GERMAN_ENGLISH}, column=None)
    miscounted = wmt14_repository({"de-en": small}, column=None)
    card = miscounted.files["README.md"].content.replace(b"examples: 40", b"examples: 41")
    repositories = {
        "own/record": wmt14_repository({"de-en": GERMAN_ENGLISH}),
        "own/columns": alone,
        "own/lines": multi30k_repository(small),
        "own/several": wmt14_repository({"de-en": small, "de-fr": small}),
        "own/renamed": wmt14_repository({"de-en": small}, languages=["ger", "eng"], column=None),
        "own/card": Repository({**miscounted.files, "README.md": HubFile(card)}),
        "own/program": Repository({"program.py": HubFile(b"raise SystemExit\n")}),
        "own/numbers": Repository({"train.jsonl": HubFile(b'{"de": 1, "en": "one"}\n')}),
    }
    names = [
        *("hf:own/record", "hf:own/columns:de-en:validation", "hf:own/lines::validation"),
        *("hf:own/several:de-en", "hf:own/several", "hf:own/several:cs-en", "hf:own/renamed"),
        *("hf:own/record:de-en:tset", "hf:own/missing", "hf:own/card::validation"),
        *("hf:own/program", "hf:own/numbers", "hf:own", "hf:own/a:b:c:d"),
        *("hf:own/.odd", "hf:own/record:de-en:../train"),
    ]
    home = tmp_path_factory.mktemp("named") / "home"
    with Hub(repositories) as hub:
        outcome = run_client(hub.endpoint, home, *names, client=HUB_CLIENT)
    off = {"client": HUB_CLIENT, "HF_HUB_OFFLINE": "1"}
    later = run_client("http://127.0.0.1:9", home, "hf:own/record", "hf:own/record::test", **off)
    assert outcome.stderr == later.stderr == ""
    answers = dict(outcome.answers)
    answers |= {f"{name}, switched off": answer for name, answer in later.answers.items()}
    return Outcome(answers, "", hub.requests)


def test_any_dataset_of_the_hub_is_read_by_its_name(named: Outcome) -> None:
    record = named.answers["hf:own/record"]
    assert list(map(tuple, record["pairs"])) == on_one_line(GERMAN_ENGLISH.train)
    assert record["fixed"] == {"line break within a sentence": 2}
    assert (record["name"], record["unit"]) == ("own/record train", "row")
    columns = named.answers["hf:own/columns:de-en:validation"]
    assert list(map(tuple, columns["pairs"])) == on_one_line(GERMAN_ENGLISH.validation)
    assert columns["name"] == "own/columns de-en validation"
    assert len(named.answers["hf:own/lines::validation"]["pairs"]) == 3
    assert len(named.answers["hf:own/several:de-en"]["pairs"]) == 40


def test_a_dataset_says_which_revision_of_what_it_is(named: Outcome) -> None:
    assert named.answers["hf:own/columns:de-en:validation"]["facts"] == {
        "kind": "hub",
        "repository": "own/columns",
        "config": "de-en",
        "split": "validation",
        "revision": wmt14_repository({"de-en": GERMAN_ENGLISH}, column=None).commit,
        "weight": 1.0,
    }


def test_the_files_of_one_split_alone_are_fetched(named: Outcome) -> None:
    alone = wmt14_repository({"de-en": GERMAN_ENGLISH}, column=None)
    asked = {
        path
        for path, file in alone.files.items()
        if file.large
        and file.sha256 in {request.removeprefix("GET /storage/") for request in named.requests}
    }
    assert asked == {"de-en/validation-00000-of-00001.parquet"}


def test_a_split_that_was_fetched_is_read_with_the_hub_switched_off(named: Outcome) -> None:
    there = named.answers["hf:own/record, switched off"]
    assert there["pairs"] == named.answers["hf:own/record"]["pairs"]
    assert there["facts"] == named.answers["hf:own/record"]["facts"]
    error = named.error("hf:own/record::test, switched off")
    assert "HF_HUB_OFFLINE is set and 'test' of own/record was not downloaded before" in error


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("hf:own/several", "has no default configuration, only de-en, de-fr: a dataset is named"),
        ("hf:own/several:cs-en", "has no configuration 'cs-en', only de-en, de-fr: "),
        ("hf:own/record:de-en:tset", "no split 'tset', only train, validation, test: a dataset is"),
        ("hf:own/renamed", "no text column 'de' in 'train', only ger, eng: a dataset is named as"),
        ("hf:own/renamed", "the columns 'de' and 'en', alone or within a column 'translation'"),
        ("hf:own/missing", "has no dataset own/missing, or it is private or gated (HTTP 401)"),
        ("hf:own/program", "Dataset scripts are no longer supported"),
        ("hf:own/numbers", "has no text column 'de' in 'train', only en: "),
        ("hf:own", "hf:own: write a dataset on the hub as hf:owner/dataset, "),
        ("hf:own/a:b:c:d", "hf:own/a:b:c:d: write a dataset on the hub as"),
        ("hf:own/.odd", "cannot read own/.odd from the Hugging Face hub"),
        ("hf:own/record:de-en:../train", "write a dataset on the hub as"),
    ],
)
def test_an_unknown_name_on_the_hub_is_reported_in_one_line(
    named: Outcome, name: str, says: str
) -> None:
    assert says in named.error(name)


def test_a_card_that_is_wrong_about_one_split_does_not_keep_from_another(named: Outcome) -> None:
    assert len(named.answers["hf:own/card::validation"]["pairs"]) == 3


def test_xet_storage_is_not_used_unless_it_is_asked_for(tmp_path: Path) -> None:
    splits = synthetic_splits(train=50, validation=10, test=10, lexicon=100)
    repositories = {"wmt/wmt14": wmt14_repository({"de-en": splits})}
    with Hub(repositories, has_xet=True, faults={"/xet/": Fault(status=403)}) as hub:
        outcome = run_client(hub.endpoint, tmp_path / "home", "wmt14-en-de")
    assert outcome.pairs("wmt14-en-de", "train") == [(en, de) for de, en in splits.train or ()]
    assert not any("/xet/" in request for request in hub.requests)


def test_a_line_at_intervals_says_that_a_download_is_still_going_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO", logger="mtkit"), waiting_noted("fetching", every=0.001):
        while len(caplog.messages) < 2:
            time.sleep(0.001)
    assert re.fullmatch(r"still fetching: \d+ s", caplog.messages[0])


def test_the_catalogue_knows_every_corpus_in_both_directions() -> None:
    assert sorted(corpus.name for corpus in CATALOGUE) == sorted(
        f"{family}-{direction}"
        for family, other in (("wmt14", "de"), ("wmt14", "fr"), ("multi30k", "de"), ("demo", "de"))
        for direction in (f"en-{other}", f"{other}-en")
    )
    for corpus in CATALOGUE:
        other = dataclasses.replace(corpus, src_lang=corpus.tgt_lang, tgt_lang=corpus.src_lang)
        assert other in CATALOGUE


def test_the_vocabularies_of_wmt14_are_those_of_the_paper() -> None:
    assert find_corpus("wmt14-en-de").vocab_size == find_corpus("wmt14-de-en").vocab_size == 37_000
    assert find_corpus("wmt14-en-fr").vocab_size == find_corpus("wmt14-fr-en").vocab_size == 32_000


def test_every_corpus_has_a_licence_a_size_and_a_source() -> None:
    for corpus in CATALOGUE:
        assert corpus.licence
        assert corpus.source
        assert corpus.train_pairs > 0
        assert corpus.built_in == (corpus.download_mb is None)


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
def test_an_unknown_name_suggests_the_nearest_if_there_is_one(typed: str, meant: str) -> None:
    hint = rf"did you mean '{meant}'\? " if meant else ""
    with pytest.raises(MtkitError, match=f"corpus '{typed}': {hint}`mtkit prepare --list`"):
        find_corpus(typed)


def test_reading_the_catalogue_does_not_load_the_datasets_library() -> None:
    code = (
        "import sys, mtkit.prepare.hub; assert not {'datasets', 'huggingface_hub'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
