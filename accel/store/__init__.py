"""Stores: their adapters, the client that reads them, listings, and the I/O loop that these run on."""
