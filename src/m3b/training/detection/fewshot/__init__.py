"""Detection from few examples, by frozen backbones with adapters."""
