"""The methods: one file, one paper; and what they have in common, and how they go together."""
