"""SimpleCNN and its training in Flax NNX, Optax and JAX: the twin of `torch_impl`."""
