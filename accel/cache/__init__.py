"""The cache: metadata, bytes and results that outlive a scan, each loaded once for all who ask at the same
time."""
