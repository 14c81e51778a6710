"""Image sets as they lie on disk."""
