"""Training: a prepared folder to a run folder `runs/NAME`."""

import lazy_loader

__getattr__, _, __all__ = lazy_loader.attach_stub(__name__, __file__)
