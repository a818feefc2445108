"""Plain Python that accepts what a role hands over, or names what is wrong with it."""
