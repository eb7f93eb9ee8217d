"""Faces for SQL engines and data frames: what they know how to push filters and columns into."""
