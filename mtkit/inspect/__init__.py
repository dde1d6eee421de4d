"""Pictures and numbers of what a model does with one sentence."""

import lazy_loader

__getattr__, _, __all__ = lazy_loader.attach_stub(__name__, __file__)
