"""External indexes (reserved)."""
