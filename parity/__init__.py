"""What a training run does when the framework or the hardware under it changes."""
