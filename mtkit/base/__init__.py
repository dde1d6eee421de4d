"""Plumbing: files, folders, text, processes, devices, pages. Nothing here knows of translation."""
