"""The step ring's bytes: layout, records, encoding, decoding, and the window. No I/O, standard library only."""
