"""What every floor needs, and nothing of holdfast itself."""
