"""Reading LIBSVM text: inputs as bytes, blocks of whole lines, compiled parsing, labels and errors."""
