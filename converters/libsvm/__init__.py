"""LIBSVM text: input streams, blocks of whole lines, compiled parsing, labels and faults."""
