"""Word alignments. `links` is plain text and numbers; the aligner loads PyTorch on first use."""

import lazy_loader

__getattr__, _, __all__ = lazy_loader.attach_stub(__name__, __file__)
