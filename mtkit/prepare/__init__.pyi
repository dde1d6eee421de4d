from .catalogue import CATALOGUE as CATALOGUE
from .corpus import Corpus as Corpus, DirectionSources as DirectionSources
from .corpus_file import load_corpus as load_corpus
from .readers import parallel_files as parallel_files, parse_source as parse_source
from .results import Report as Report
from .run import (
    PrepareOptions as PrepareOptions,
    prepare as prepare,
    prepare_files as prepare_files,
)
from .source import Source as Source
from .statistics import write_page as write_page
from .treebank import Treebank as Treebank
