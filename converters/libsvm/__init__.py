"""Parse LIBSVM text: input streams, blocks of whole lines, compiled parsers, labels and faults."""
