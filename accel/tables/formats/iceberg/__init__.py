"""Iceberg tables: metadata, manifests and deletes of versions 1 to 3."""
