"""The `accel` command: scan, explain, inspect, embed."""
