"""Image data sets as canonical arrays, and the batches made of them."""
