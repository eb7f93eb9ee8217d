"""Pictures for notebooks and for files of their own: what a scan reads of each file, and how a file is laid
out."""
