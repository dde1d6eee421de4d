"""PyTorch as an engine: the reference on a CPU, and what decodes on a GPU."""
