"""Data preparation: raw text to a prepared folder `data/NAME`. Nothing here loads PyTorch."""

import lazy_loader

__getattr__, _, __all__ = lazy_loader.attach_stub(__name__, __file__)
