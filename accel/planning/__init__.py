"""From metadata and a predicate to keyed byte ranges: pure."""
