"""What a model reads to predict: data of any kind as rows with its features and classes."""
