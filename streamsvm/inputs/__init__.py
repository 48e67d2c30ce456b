"""Read data of any kind as rows with the features and classes of a model."""
