"""Stored runs: read, grouped over seeds, compared, and written as tables."""
