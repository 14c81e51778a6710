"""Malformed and hostile inputs, one file for each door that they knock at."""
