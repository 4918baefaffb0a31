"""`roce pingpong` against the stock pingpongs."""
