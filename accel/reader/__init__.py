"""One file is read: opened, planned, and the pages of its tasks fetched and decoded. Plan, I/O and decode
meet here."""
