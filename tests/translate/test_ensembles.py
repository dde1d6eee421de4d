"""Several models, and a vocabulary for each side."""

from types import SimpleNamespace

import pytest
import torch
from conftest import random_run
from support.translators import ids_of

from mtkit.base.errors import MtkitError
from mtkit.run_folder import Run
from mtkit.tokenizer import BOS_ID, EOS_ID
from mtkit.translate.loading import choose_direction
from mtkit.translate.translator import Translator

# Several models


def by_forward_passes(runs: list[Run], source: str, ids: list[int]) -> list[float]:
    """Logarithms of the mean probability of each token, by the full forward passes."""
    probabilities = torch.zeros(len(ids), dtype=torch.float64)
    for run in runs:
        alone = Translator.load(run, device="cpu", prepared=False)
        src = torch.tensor([[*alone.src_tokenizer.encode(source), EOS_ID]])
        with torch.no_grad():
            logits = alone.model(src, torch.tensor([[BOS_ID, *ids[:-1]]]))[0].double()
        probabilities += logits.softmax(-1)[range(len(ids)), ids] / len(runs)
    return probabilities.log().tolist()


@pytest.fixture(scope="module")
def same(uneven, greek_data, tmp_path_factory) -> Run:
    """Another run with both vocabularies of `uneven`."""
    place = tmp_path_factory.mktemp("same") / "run"
    return random_run(place, greek_data, 6, tokenizers=uneven.tokenizers())


@pytest.mark.parametrize(
    "names", [["untrained", "also_untrained"], ["uneven"], ["uneven", "same"]], ids=str
)
def test_tokens_are_found_by_the_mean_of_the_probabilities(names, request):
    runs = list(map(request.getfixturevalue, names))
    held, (_, tgt) = Translator.load(runs, device="cpu"), runs[0].tokenizers()
    lines, beginning = ["one two three", "nine"], "έξι"
    nbests = held.translate_nbest(lines, n_best=2, prefixes=[beginning] * len(lines))
    for line, nbest in zip(lines, nbests, strict=True):
        for translation in nbest:
            ids = ids_of(held, translation.pieces)
            assert translation.text == tgt.decode(ids)
            assert translation.text.startswith(beginning)
            expected = by_forward_passes(runs, line, ids)
            assert translation.log_probs == pytest.approx(expected, abs=1e-4)
            assert translation.log_prob == pytest.approx(sum(expected), abs=1e-4)


@pytest.mark.parametrize("names", [["uneven"], ["untrained", "also_untrained"]])
def test_given_translations_are_scored_in_their_own_subwords_by_all_models(names, request):
    runs = list(map(request.getfixturevalue, names))
    translator, (_, tgt) = Translator.load(runs, device="cpu"), runs[0].tokenizers()
    (scored,) = translator.score_given(["one two"], ["δύο ένα"])
    ids = [*tgt.encode("δύο ένα"), EOS_ID]
    assert scored.pieces == tuple(tgt.piece(i) for i in ids)
    assert scored.log_probs == pytest.approx(by_forward_passes(runs, "one two", ids), abs=1e-5)


def test_a_source_too_long_is_measured_in_its_own_subwords(uneven, caplog):
    translator = Translator.load(uneven, device="cpu")
    line = "seven " * 200
    lengths = [len(tokenizer.encode(line)) + 1 for tokenizer in uneven.tokenizers()]
    assert lengths[0] != lengths[1]
    list(translator.translate([line]))
    assert f"cut from {lengths[0]} to 60 tokens" in caplog.text


def test_runs_of_other_subwords_on_a_side_are_refused(uneven, greek_data, tiny_data, tmp_path):
    src, tgt = uneven.tokenizers()
    other, _ = tiny_data.tokenizers()
    for number, tokenizers in enumerate([(other, tgt), (src, other), (tgt, tgt)]):
        run = random_run(tmp_path / str(number), greek_data, 6, tokenizers=tokenizers)
        message = f"{run.path}: has another vocabulary than {uneven.path}"
        with pytest.raises(MtkitError, match=message):
            Translator.load([uneven, run], device="cpu")


@pytest.mark.parametrize(("src_lang", "count"), [("de", 0), ("en", 1)])
def test_one_language_on_both_sides_of_an_imported_model_is_reported(src_lang, count, caplog):
    # It does not say which directions it was trained on.
    run = SimpleNamespace(path="m2m", manifest=SimpleNamespace(data=SimpleNamespace(directions=[])))
    tagged = SimpleNamespace(language_tags={"de": 5, "en": 6})
    vocabularies = SimpleNamespace(src=tagged, has_tags_on_both_sides=True)
    assert choose_direction(run, vocabularies, src_lang, "en") == (src_lang, "en")
    assert caplog.text.count("m2m: translates en to itself; give two languages") == count
