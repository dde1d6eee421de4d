from .choosing import describe_engine as describe_engine
from .decoding import Backend as Backend
from .doubts import IncompleteTranslations as IncompleteTranslations
from .loading import LoadedRuns as LoadedRuns, known_code as known_code
from .html.markup import (
    MarkupLines as MarkupLines,
    MarkupPairs as MarkupPairs,
    markup_steps as markup_steps,
    markup_text as markup_text,
    markup_windows as markup_windows,
    placeholder_steps as placeholder_steps,
    translate_markup as translate_markup,
    with_placeholders as with_placeholders,
)
from .html.markup_reading import MarkupRules as MarkupRules
from .native_decoder import backend_in_training as backend_in_training
from .reading import Window as Window, ready_lines as ready_lines, windows as windows
from .requests import Sentence as Sentence, Translation as Translation
from .sentence_reader import align_by_sentence as align_by_sentence
from .samples import ForcedDecoder as ForcedDecoder, Sampler as Sampler
from .resumable import ResumableOutput as ResumableOutput
from .glossary.terms import Glossary as Glossary
from .pytorch.decoder import Torch as Torch
from .translator import Translator as Translator
