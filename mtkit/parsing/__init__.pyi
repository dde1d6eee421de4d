from .bracketing import (
    Scores as Scores,
    score_trees as score_trees,
    trees_of_lines as trees_of_lines,
)
from .parser import Parsing as Parsing, counted_words as counted_words, make_task as make_task
from .task import Task as Task
from .trees import (
    Phrase as Phrase,
    Tree as Tree,
    linearise as linearise,
    model_source as model_source,
    parse_trees as parse_trees,
    read_bracket as read_bracket,
    split_words as split_words,
)
