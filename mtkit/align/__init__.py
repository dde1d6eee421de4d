"""Word alignments. `links` is plain text and numbers; the other modules load PyTorch."""
