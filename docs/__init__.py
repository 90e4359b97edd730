"""What the README shows, made from runs by script."""
