"""A scan's source made definite: its files found, opened, judged, each with the way to plan it."""
