"""The paper's experiments, its published numbers, and when ours may stand beside them."""
