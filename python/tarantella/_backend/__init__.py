"""What only one framework knows, one module for each, with the same functions in all."""
