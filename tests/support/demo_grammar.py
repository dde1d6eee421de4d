"""The grammar of the demo corpus, for tests that need many pairs of sentences."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "examples/demo"))

from demo_grammar import SEED as SEED
from demo_grammar import demo_corpus as demo_corpus
from demo_grammar import held_out as held_out
from demo_grammar import lexicon as lexicon
from demo_grammar import sentences as sentences
