"""The published results of the article "Cross-GPU Reproducibility", read as they are."""
