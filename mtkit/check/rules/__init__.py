"""Rules for a pair of lines that need no model."""
