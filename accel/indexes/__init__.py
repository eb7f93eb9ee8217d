"""Index kinds (reserved)."""
