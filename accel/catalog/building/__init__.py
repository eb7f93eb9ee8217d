"""How a catalog is built, refreshed and merged, and what it takes in of what scans see."""
