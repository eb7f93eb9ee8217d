"""Delta tables: the log, what it says of files, and the rows that are gone."""
