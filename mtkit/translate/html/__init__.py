"""Text with markup and placeholders: taken out, and placed again by alignment."""
