"""See what PyTorch's dispatcher really did."""
