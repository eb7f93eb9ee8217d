"""One run over files: pieces of many read side by side, their batches in order."""
