"""What requests cost at S3's list price."""

from __future__ import annotations

__all__ = ["GET_A_THOUSAND", "LIST_A_THOUSAND", "dollars_a_million"]

GET_A_THOUSAND = 0.0004
"""Dollars for 1,000 GET or HEAD requests, S3 Standard, us-east-1, November 2026. Transfer within the region
is free."""
LIST_A_THOUSAND = 0.005
"""Dollars for 1,000 LIST requests, likewise."""


def dollars_a_million(requests: float, lists: float = 0.0) -> float:
    """Dollars for a million queries of so many requests each, of which `lists` list."""
    return 1000 * ((requests - lists) * GET_A_THOUSAND + lists * LIST_A_THOUSAND)
