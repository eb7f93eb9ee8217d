"""What is worth keeping between scans: metadata, bytes, results; each loaded once, however many ask."""
