"""Sources of files: paths, globs and hive directories."""
