"""The kinds of index outside the files: what each keeps of a column, and what it rules out."""
