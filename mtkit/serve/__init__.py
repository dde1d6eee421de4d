"""The HTTP server: LibreTranslate's and DeepL's translation API, for one run or several."""

import lazy_loader

__getattr__, _, __all__ = lazy_loader.attach_stub(__name__, __file__)
