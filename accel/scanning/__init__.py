"""A scan and its faces: the stages of the pipeline put together for rows, counts, aggregates and
explanations."""
