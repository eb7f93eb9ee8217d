"""Jobs over all files of a directory: rewriting them in an order, and putting indexes into them."""
