"""What writes tables and documents down: for a terminal, in Markdown and in LaTeX."""
