"""How a scan asks a catalog: which files are left, and what is known of them."""
