"""The engine: a model that predicts, and adapts to what it sees."""
