"""The formats of tables, a folder for each."""
