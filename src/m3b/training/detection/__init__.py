"""Detection by boxes or masks."""
