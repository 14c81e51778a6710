"""What holdfast tells a person of methods, models and images before a stream begins."""
