"""Beam search, sampling and phrases: what is looked for, without models and text."""
