"""Where file lists come from: paths, globs, hive directories."""
