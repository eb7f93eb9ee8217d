"""Predicates: one immutable tree, its evidence, its exact evaluation: pure."""
