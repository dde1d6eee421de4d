"""Machine translation with the Transformer of *Attention Is All You Need*.

The command line is `mtkit`. The same from Python: `mtkit.Translator` with `mtkit.DecodeConfig`,
`mtkit.Tokenizer`, `mtkit.Transformer`, and `score` of the module `mtkit.score`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtkit.base.lazy import lazy_names

__version__ = "0.1.0"

if TYPE_CHECKING:
    from mtkit.config import DecodeConfig
    from mtkit.model import Transformer
    from mtkit.tokenizer import Tokenizer
    from mtkit.translate import Translator

__all__ = ["DecodeConfig", "Tokenizer", "Transformer", "Translator", "__version__"]

# On first use, because `mtkit --help` must not wait for PyTorch.
__getattr__ = lazy_names(__name__, __all__, "config", "tokenizer", "model", "translate")
