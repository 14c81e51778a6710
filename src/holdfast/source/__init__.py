"""What is known before the stream."""
