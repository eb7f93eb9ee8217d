"""Where file lists come from."""
