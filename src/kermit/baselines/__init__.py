"""What the paper compares with: models of other kinds, trained and asked by the same commands."""
