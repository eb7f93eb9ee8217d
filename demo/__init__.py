"""The demonstration: one selective query over the flights of 2013, from Python and from Spark."""
