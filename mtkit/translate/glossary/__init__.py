"""Terms of a glossary: where they stand, and that they are in the translation."""
