"""What is seen while runs go on."""
