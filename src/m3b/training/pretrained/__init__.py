"""Pretrained networks: where they are, what is in their files, and plans that start from them."""
