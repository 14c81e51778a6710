"""What can be downloaded, and how."""
