"""transduce: the Transformer of "Attention Is All You Need" as software to rely on."""
