"""Micro-benchmarks: one mechanism each, isolated."""
