"""What Tarantella adds to Keras: the model wrapper and the hooks behind it."""
