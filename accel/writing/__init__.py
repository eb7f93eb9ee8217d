"""Writing (reserved)."""
