"""What a query costs over a network with latency: requests, round trips, bytes, time."""
