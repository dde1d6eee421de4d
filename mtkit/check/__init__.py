"""Checks of pairs of lines: findings with reasons. What needs no model loads no PyTorch."""

import lazy_loader

__getattr__, _, __all__ = lazy_loader.attach_stub(__name__, __file__)
