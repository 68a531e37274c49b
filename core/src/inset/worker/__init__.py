"""The worker: runs encoders and the language model for one step."""
