"""What the benchmark reads: made once into a folder that git ignores, uploaded at every run."""
