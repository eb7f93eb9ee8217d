"""Bytes from stores: adapters, retry, gate, fetch, cache, and the loop they run on."""
