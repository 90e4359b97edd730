"""SimpleCNN and its training in PyTorch: the twin of `jax_impl`."""
