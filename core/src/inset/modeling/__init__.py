"""What a model must give the worker, and the attention that all of them share."""
