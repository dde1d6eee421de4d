"""What is learned from pairs or from a run: coverage, a lexicon, confidence."""
