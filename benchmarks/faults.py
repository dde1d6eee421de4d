"""Plants faults in pairs of lines whose translation is right.

Nothing here is shared with the checks that must find the faults. Every choice is made by a given
generator of random numbers, so the same seed plants the same faults.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

Pair = tuple[str, str]

# A clause is what is between two of these marks; at least so many words.
_MARKS = re.compile(r"""[,;:.!?)»”“"–—]+(?=\s|$)|(?<!\S)[(«„“"–—-]+""")
_CLAUSE = 4
# Words of a run of words that is deleted, at most, and words that must be left.
_MAX_RUN, _LEFT = 8, 3
# Words of a phrase that is repeated, and how often it is then there.
_MAX_PHRASE, _TIMES = 6, 3
# A line with fewer words is not cut. It is cut in the middle third.
_MIN_WORDS_TO_CUT = 6
_NUMBER = re.compile(r"\d+")
# One of them is replaced by another of the same language.
_NUMBER_WORDS = (
    ("two", "three", "four", "five"),
    ("zwei", "drei", "vier", "fünf"),
    ("deux", "trois", "quatre", "cinq"),
)
# What a program puts values into, or what marks a part of a text.
_PLACEHOLDERS = ("{name}", "{0}", "%s", "%d", "%(count)d", "${user}", "{{ title }}", "<br/>")
_TAGS = (("<b>", "</b>"), ("<i>", "</i>"), ('<a href="/help">', "</a>"), ("<g id=1>", "</g>"))
# Lines of which the one with the most similar length is chosen, for a third language.
_CANDIDATES = 50


@dataclass(frozen=True)
class Fault:
    """A way to make a translation wrong.

    Attributes:
        name: for tables.
        expected: the kinds of findings that name it.
        plant: the pair with the fault, or None if it is not possible in the pair.
    """

    name: str
    expected: frozenset[str]
    plant: Callable[[Pair, random.Random], Pair | None]


def faults(pairs: Sequence[Pair], third: Sequence[str]) -> list[Fault]:
    """All faults.

    Args:
        pairs: whose translations are taken for other lines.
        third: lines of another language than those of the pairs.
    """

    def another_line(pair: Pair, choose: random.Random) -> Pair | None:
        other = choose.choice(pairs)
        return None if other[1] == pair[1] or other[0] == pair[0] else (pair[0], other[1])

    def third_language(pair: Pair, choose: random.Random) -> Pair | None:
        candidates = choose.sample(third, min(_CANDIDATES, len(third)))
        return pair[0], min(candidates, key=lambda line: abs(len(line) - len(pair[1])))

    def fault(name: str, expected: str, plant: Callable[..., Pair | None]) -> Fault:
        return Fault(name, frozenset(expected.split()), plant)

    kinds = [
        fault("clause deleted", "omission", clause_deleted),
        fault("4 to 8 words in a row deleted", "omission", words_deleted),
        fault("phrase three times", "loop", phrase_repeated),
        fault("source copied", "copied", lambda pair, _: (pair[0], pair[0])),
        fault("number changed", "numbers", number_changed),
        fault("number in words changed", "numbers", number_word_changed),
        fault("inserted number changed", "numbers", inserted_number_changed),
        fault("placeholder or tag dropped", "placeholders markup", placeholder_dropped),
        fault("translation of another line", "omission addition", another_line),
        fault("cut in the middle", "cut omission", cut),
        fault("clause of the source deleted", "addition", source_clause_deleted),
    ]
    if third:
        kinds.append(fault("third language", "language", third_language))
    return kinds


def planted(
    fault: Fault, pairs: Sequence[Pair], *, count: int, seed: int
) -> list[tuple[int, Pair]]:
    """Faults in up to `count` pairs, with the indices of the pairs, in random order.

    There are fewer if the fault is not possible in enough pairs.
    """
    # The name too: each fault has pairs of its own.
    choose = random.Random(f"{seed} {fault.name}")
    order = list(range(len(pairs)))
    choose.shuffle(order)
    pairs_with_fault = []
    for index in order:
        if len(pairs_with_fault) == count:
            break
        pair = fault.plant(pairs[index], choose)
        if pair is not None:
            pairs_with_fault.append((index, pair))
    return pairs_with_fault


def clause_deleted(pair: Pair, choose: random.Random) -> Pair | None:
    """One of several clauses of the translation is missing, of at least four words."""
    text = _without_clause(pair[1], choose)
    return None if text is None else (pair[0], text)


def source_clause_deleted(pair: Pair, choose: random.Random) -> Pair | None:
    """The translation has a clause that the source has not."""
    text = _without_clause(pair[0], choose)
    return None if text is None else (text, pair[1])


def words_deleted(pair: Pair, choose: random.Random) -> Pair | None:
    """Four to eight words in a row are missing, at most half of them; the last word stays."""
    words = pair[1].split()
    longest = min(_MAX_RUN, len(words) // 2, len(words) - _LEFT)
    if longest < _CLAUSE:
        return None
    size = choose.randint(_CLAUSE, longest)
    start = choose.randint(0, len(words) - size - 1)
    return pair[0], " ".join(words[:start] + words[start + size :])


def phrase_repeated(pair: Pair, choose: random.Random) -> Pair | None:
    """A phrase of one to six words is there three times in a row."""
    words = pair[1].split()
    if not words:
        return None
    size = choose.randint(1, min(_MAX_PHRASE, len(words)))
    start = choose.randint(0, len(words) - size)
    phrase = words[start : start + size]
    if not re.search(r"\w", " ".join(phrase)):
        return None
    return pair[0], " ".join(words[:start] + phrase * _TIMES + words[start + size :])


def number_changed(pair: Pair, choose: random.Random) -> Pair | None:
    """A digit of the translation is another one."""
    numbers = list(_NUMBER.finditer(pair[1]))
    if not numbers:
        return None
    text = _with_other_digit(pair[1], choose.choice(numbers), choose)
    return pair[0], text


def number_word_changed(pair: Pair, choose: random.Random) -> Pair | None:
    """A word for a number from two to five is another one."""
    words = pair[1].split(" ")
    places = [
        (at, known) for at, word in enumerate(words) for known in _NUMBER_WORDS if word in known
    ]
    if not places:
        return None
    at, known = choose.choice(places)
    words[at] = choose.choice([word for word in known if word != words[at]])
    return pair[0], " ".join(words)


def inserted_number_changed(pair: Pair, choose: random.Random) -> Pair | None:
    """Both sides get a number, and one of its digits is another one in the translation."""
    number = str(choose.randint(10, 10 ** choose.randint(2, 4) - 1))
    source, translation = (_inserted(text, number, choose) for text in pair)
    match = re.search(rf"(?<!\S){number}(?!\S)", translation)
    return None if match is None else (source, _with_other_digit(translation, match, choose))


def placeholder_dropped(pair: Pair, choose: random.Random) -> Pair | None:
    """Both sides get a placeholder or tags; the translation loses it, or one of the two tags."""
    (source, translation), part = with_placeholder(pair, choose)
    before, separator, after = translation.partition(part)
    # Without two spaces where it was.
    return (source, " ".join((before + after).split())) if separator else None


def with_placeholder(pair: Pair, choose: random.Random) -> tuple[Pair, str]:
    """Both sides with a placeholder or with tags around a word; and what can be dropped of it."""
    if choose.random() < 0.5:
        part = choose.choice(_PLACEHOLDERS)
        source, translation = (_inserted(text, part, choose) for text in pair)
        return (source, translation), part
    tags = choose.choice(_TAGS)
    sides = []
    for text in pair:
        words = text.split() or [""]
        at = choose.randrange(len(words))
        words[at] = tags[0] + words[at] + tags[1]
        sides.append(" ".join(words))
    return (sides[0], sides[1]), choose.choice(tags)


def cut(pair: Pair, choose: random.Random) -> Pair | None:
    """The translation ends after a word in its middle third."""
    words = pair[1].split()
    if len(words) < _MIN_WORDS_TO_CUT:
        return None
    end = choose.randint(-(-len(words) // 3), 2 * len(words) // 3)
    return pair[0], " ".join(words[:end])


def _without_clause(text: str, choose: random.Random) -> str | None:
    """A text without one of its clauses of four words or more; None if there is only one clause."""
    spans = list(_clauses(text))
    long = [span for span in spans if len(text[slice(*span)].split()) >= _CLAUSE]
    if len(spans) < 2 or not long:
        return None
    start, end = choose.choice(long)
    # The mark after the clause goes too; of the last clause, that before it.
    is_last = not re.search(r"\w", text[end:])
    if is_last:
        left = re.sub(r"[\s,;:(«„“\"–—-]+$", "", text[:start]) + text[end:].lstrip()
    else:
        left = f"{text[:start]} " + re.sub(r"^[\s,;:.!?)»”\"–—]+", "", text[end:])
    words = left.split()
    return " ".join(words) if len(re.findall(r"\w+", left)) >= _LEFT else None


def _clauses(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of each clause, of those with words."""
    start = 0
    ends = [match.span() for match in _MARKS.finditer(text)] + [(len(text), len(text))]
    for end, next_start in ends:
        if re.search(r"\w", text[start:end]):
            yield start, end
        start = next_start


def _inserted(text: str, part: str, choose: random.Random) -> str:
    """A text with one word more, not at its end."""
    words = text.split()
    words.insert(choose.randint(0, max(0, len(words) - 1)), part)
    return " ".join(words)


def _with_other_digit(text: str, number: re.Match[str], choose: random.Random) -> str:
    """A text in which one digit of a number is another one; no number begins with a new 0."""
    at = choose.randrange(number.start(), number.end())
    others = set("123456789" if at == number.start() else "0123456789") - {text[at]}
    return text[:at] + choose.choice(sorted(others)) + text[at + 1 :]
