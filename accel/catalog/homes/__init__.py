"""Where a catalog lies: objects and directories, databases, key-value stores."""
