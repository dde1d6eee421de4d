"""Machine translation with the Transformer of *Attention Is All You Need*.

The command line is `mtkit`. The same from Python: `mtkit.Translator` with `mtkit.DecodeConfig`,
`mtkit.Tokenizer`, `mtkit.Transformer`, and `score` of the module `mtkit.score`.
"""

import lazy_loader

__version__ = "0.1.0"

# On first use, because `mtkit --help` must not wait for PyTorch.
__getattr__, _, __all__ = lazy_loader.attach_stub(__name__, __file__)
