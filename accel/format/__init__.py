"""Parquet's own bytes: pure."""
