"""What the training script needs beside data and models."""
