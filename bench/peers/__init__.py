"""What one would use instead of accel, each at its best documented settings, each in a process of its own."""
