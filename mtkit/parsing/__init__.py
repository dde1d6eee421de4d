"""Constituency parsing, Section 6.3 of the paper. Only `task` loads PyTorch."""
