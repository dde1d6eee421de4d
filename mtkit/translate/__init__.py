"""Translation: text to text, with the model of a run. PyTorch is loaded only if it decodes."""

import lazy_loader

__getattr__, _, __all__ = lazy_loader.attach_stub(__name__, __file__)
