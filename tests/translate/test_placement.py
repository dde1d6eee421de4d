"""Where the terms of a glossary go."""

from collections.abc import Sequence
from functools import partial

import pytest

from mtkit.search_settings import Hypothesis, SearchSettings
from mtkit.tokenizer import BOS_ID, EOS_ID, UNK_ID, Tokenizer
from mtkit.translate import Glossary, Translator
from mtkit.translate.glossary import placement
from mtkit.translate.glossary.placement import Draft, Plan, TermPlanner
from mtkit.translate.glossary.terms import Demand, TermEncoder
from mtkit.translate.requests import Sentence

# The source of every draft; the source without a term is [UNK_ID, its number].
SOURCE = [9, 9]


class Drafts:
    """Plans for drafts of German words, with a given word that depends on each term."""

    def __init__(self, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tokenizer = tokenizer
        self.terms = TermEncoder(self.tokenizer)
        self.planner = TermPlanner([], self.terms)
        monkeypatch.setattr(placement, "given_log_probs", self._log_probs)

    def _log_probs(
        self,
        models: object,
        sources: Sequence[list[int]],
        targets: Sequence[Sequence[int]],
        **_: object,
    ) -> list[list[float]]:
        """Without a term, the first token of its word is less probable by 5."""
        rows = []
        for source, target in zip(sources, targets, strict=True):
            row = [-1.0] * (len(target) + 1)
            if source != SOURCE and self.words[source[1]] is not None:
                row[self.start(self.words[source[1]])] -= 5
            rows.append(row)
        return rows

    def start(self, word: int) -> int:
        """The first token of a word of the draft."""
        return self.size(" ".join(self.text.split()[:word]))

    def size(self, text: str) -> int:
        return len(self.tokenizer.encode(text))

    def plan(
        self, text: str, terms: dict[str, int | None], *, prefix: str = "", limit: int = 100
    ) -> Plan:
        """The plan for terms, of which each has a word of the draft, by number, or none."""
        sentence = self.sentence(text, terms, prefix)
        draft = Draft(sentence, self.tokenizer.encode(text), limit)
        (plan,) = self.planner.plans([draft])
        assert plan is not None
        return plan

    def sentence(self, text: str, terms: dict[str, int | None], prefix: str) -> Sentence:
        """A sentence that demands the terms; the text is its draft."""
        self.text, self.words = text, list(terms.values())
        demands = [Demand(term, partial(list, [UNK_ID, i])) for i, term in enumerate(terms)]
        return Sentence(1, SOURCE, self.tokenizer.encode(prefix), demands)

    def kept(self, plan: Plan) -> str:
        """The text that a translation begins with."""
        return self.tokenizer.decode(plan.prefix)


@pytest.fixture
def drafts(tiny_data, monkeypatch) -> Drafts:
    return Drafts(tiny_data.tokenizers().tgt, monkeypatch)


TEXT = "eins zwei drei vier fünf sechs"


def test_a_term_replaces_the_word_that_depends_on_it(drafts):
    plan = drafts.plan(TEXT, {"acht": 3})
    assert drafts.kept(plan) == "eins"
    (deadline,) = plan.deadlines
    # By then the draft has its word, or the term if that is longer.
    size = max(map(drafts.size, ("vier", "acht")))
    assert deadline == (drafts.start(3) + size, 0)


def test_a_term_that_no_word_depends_on_may_be_anywhere(drafts):
    plan = drafts.plan(TEXT, {"acht": None})
    assert (list(plan.prefix), plan.deadlines) == ([], [])
    plan = drafts.plan(TEXT, {"acht": None, "neun": 3})
    assert list(plan.prefix) == []
    (deadline,) = plan.deadlines
    assert deadline.remaining == drafts.size("acht")


def test_terms_that_the_draft_has_are_demanded_too(drafts):
    plan = drafts.plan(TEXT, {"sechs": None, "eins": None, "acht": 3})
    assert drafts.kept(plan) == "eins"
    assert plan.tracker.total == sum(map(drafts.size, ("sechs", "eins", "acht")))
    (deadline,) = plan.deadlines
    assert deadline.remaining == drafts.size("sechs")


def test_several_terms_have_deadlines_in_the_order_of_their_words(drafts):
    plan = drafts.plan(TEXT, {"acht": 4, "neun": 2})
    assert drafts.kept(plan) == ""
    first, last = plan.deadlines
    assert first.remaining == drafts.size("acht")
    assert last.remaining == 0
    assert first.length < last.length


def test_a_forced_beginning_stays(drafts):
    assert drafts.kept(drafts.plan(TEXT, {"acht": 4}, prefix="eins")) == "eins zwei"
    plan = drafts.plan(TEXT, {"acht": 0}, prefix="eins")
    assert (drafts.kept(plan), plan.deadlines) == ("eins", [])


def test_what_is_kept_leaves_room_for_the_terms(drafts):
    limit = drafts.size(TEXT)
    plan = drafts.plan(TEXT, {"acht": 5, "neun neun neun": 4}, limit=limit)
    assert len(plan.prefix) + plan.tracker.after(plan.prefix) <= limit


@pytest.mark.parametrize(
    ("before", "word", "after", "term", "expected"),
    [
        ("我用", "接口", "。", "API", "我用API。"),
        ("我用", " 接口", "。", "API", "我用 API。"),
        ("我用", "接口", "。", "苹果", "我用苹果。"),
        ("", "我用", "接口。", "苹果", "苹果接口。"),
        ("das", " Wort", " ist neu", "苹果", "das 苹果 ist neu"),
        ("das /", " Wort", " ist neu", "Buch", "das / Buch ist neu"),
        ("das/", "Wort", " ist neu", "Buch", "das/Buch ist neu"),
    ],
)
def test_a_term_is_spaced_as_what_it_replaces(before, word, after, term, expected, monkeypatch):
    lines = ["我用接口。 我用 接口。 苹果", "das Wort / ist neu API Buch (das/Wort) /Wort"]
    tokenizer = Tokenizer.learn(lines, 310)
    drafts = Drafts(tokenizer, monkeypatch)
    text = before + word + after
    ((_, spans),) = tokenizer.encode_with_spans([text])
    start = next(i for i, (_, end) in enumerate(spans) if end > len(before))
    monkeypatch.setattr(drafts, "start", lambda _: start)
    assert tokenizer.decode(drafts.plan(text, {term: 0}).pasted) == expected


WEAK, LONG = "eins zwei drei vier", "zwei drei vier fünf sechs sieben neun"


@pytest.mark.parametrize(
    ("terms", "prefix", "searched", "loss", "expected"),
    [
        # A translation of the search that is as probable, within e^10, is taken.
        ({"acht": 2}, "", "eins zwei acht neun", 0, None),
        ({"acht": 2}, "", "eins acht", 9.9, None),
        ({"acht": 2}, "", "acht zwei acht neun acht vier acht", 0, None),
        # The word that the term should replace stands beside it.
        ({"acht": 2}, "", "eins zwei acht drei", 0, "eins zwei acht vier"),
        ({"acht drei": 2}, "", "eins zwei acht drei", 0, None),
        # Far less probable, much longer, a loop of a word, of several, of subwords.
        ({"acht": 2}, "", "eins zwei acht neun", 10.1, "eins zwei acht vier"),
        ({"acht": 2}, "", f"eins acht {LONG}", 0, "eins zwei acht vier"),
        ({"acht": 0}, "", "acht neun neun neun", 0, "acht zwei drei vier"),
        ({"acht": 3}, "", "acht eins acht eins acht eins", 0, "eins zwei drei acht"),
        ({"acht": 2, "neun": 0}, "", "neun acht zwei zwei zwei", 0, "neun zwei acht vier"),
        ({"neun": 1, "acht": 1}, "", "neun acht zwei zwei zwei", 0, "eins neun acht drei vier"),
        ({"acht": 2, "vier": None}, "", "acht vier eins eins eins", 0, "eins zwei acht vier"),
        # The word of another term is not replaced, and a forced beginning stays.
        ({"acht": 2, "drei": None}, "", "acht drei eins eins eins", 0, WEAK),
        ({"acht": 0}, "eins", "eins acht acht acht", 0, WEAK),
        ({"acht": None}, "", "acht eins eins eins", 0, WEAK),
        ({"acht": None, "neun": 3}, "", "acht neun eins eins eins", 0, "eins zwei drei neun"),
        # Without a place, a translation that is no loop and not much longer is taken.
        ({"acht": None}, "", "acht eins zwei drei", 99, None),
        # Nothing was found with the terms.
        ({"acht": 2}, "", "", 0, "eins zwei acht vier"),
    ],
)
def test_a_search_that_went_wrong_gives_the_draft_with_terms_in_their_places(
    drafts, terms, prefix, searched, loss, expected
):
    encode, sentence = drafts.tokenizer.encode, drafts.sentence(WEAK, terms, prefix)
    # Each token of the draft and of the pasted one has -1, EOS too.
    size = len(encode(expected or "eins zwei acht vier")) + 1
    log_prob = -size - loss
    result = Hypothesis(tuple(encode(searched)), log_prob, log_prob, True, ())
    free = Hypothesis(tuple(encode(WEAK)), -5.0, -5.0, True, ())
    settings = SearchSettings([100], BOS_ID, EOS_ID, 0.0)
    how = {"beam_size": 1, "n_best": 1, "search": lambda *_: [[result] if searched else []]}
    ((best, *others),) = drafts.planner.complete([sentence], [[free]], settings, **how)
    assert not others
    assert drafts.tokenizer.decode(best.tokens) == (searched if expected is None else expected)
    if expected not in (None, WEAK):
        assert (best.log_prob, best.score, len(best.token_log_probs)) == (-size, -size, size)


def test_a_translation_with_its_terms_stays_as_it_is(untrained):
    lines = ["one two", "three four five"]
    with Translator.load(untrained, device="cpu") as plain:
        before = list(plain.translate(lines))
    words = [text.split()[0] for text in before]
    glossary = Glossary({"two": words[0], "three": words[1]})
    with Translator.load(untrained, device="cpu", glossary=glossary) as held:
        assert list(held.translate(lines)) == before
