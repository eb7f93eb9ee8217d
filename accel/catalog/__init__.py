"""The catalog: an index outside the files, from a predicate to the files, row groups and rows that can match
it."""
