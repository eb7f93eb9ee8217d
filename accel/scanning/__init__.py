"""What a scan is asked, and the ways it is run for that: rows, counts, aggregates, plans, explanations."""
