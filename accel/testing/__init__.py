"""Stores, files and a proxy to test against."""
