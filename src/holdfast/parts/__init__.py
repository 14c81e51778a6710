"""The slots of a method, and what fills them."""
