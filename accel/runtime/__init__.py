"""The event loop of accel, its tasks and its threads."""
