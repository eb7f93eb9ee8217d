"""The benchmarks of accel."""
