"""Long and hostile use: what no test of a few seconds would find. `python -m soak --help`."""
