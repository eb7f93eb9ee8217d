"""The tests of accel; `tests.support` holds the servers and sample data that they share with `bench/`."""
