"""Pretrained networks: their files, backbones, and plans that start from them."""
