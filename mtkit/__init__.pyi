from .config import DecodeConfig as DecodeConfig
from .model import Transformer as Transformer
from .tokenizer import Tokenizer as Tokenizer
from .translate import Translator as Translator

__version__: str
