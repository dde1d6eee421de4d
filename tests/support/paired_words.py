"""A language whose words have one translation each, in the same order."""

import random

from mtkit.check.model.coverage import Coverage
from mtkit.check.model.lexicon import Lexicon

WORDS = [f"s{chr(97 + i)}{chr(97 + j)}a" for i in range(8) for j in range(8)]


def pair_of_words(pick: random.Random) -> tuple[str, str]:
    """A source and its translation."""
    words = pick.sample(WORDS, pick.randint(8, 14))
    return " ".join(words), " ".join(f"t{word[1:]}" for word in words)


def coverage_of_words() -> Coverage:
    """What is learned from some pairs."""
    pick = random.Random(1)
    lexicon = Lexicon.learn([pair_of_words(pick) for _ in range(400)])
    return Coverage(lexicon, Coverage.fit(lexicon, [pair_of_words(pick) for _ in range(200)]))
