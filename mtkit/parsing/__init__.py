"""Constituency parsing, Section 6.3 of the paper. Nothing in it loads PyTorch."""

import lazy_loader

__getattr__, _, __all__ = lazy_loader.attach_stub(__name__, __file__)
