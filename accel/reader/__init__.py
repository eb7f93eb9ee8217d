"""One file read: opened, planned, its tasks' pages fetched and decoded. Here plan, I/O and decode meet."""
