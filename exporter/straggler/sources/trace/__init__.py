"""Chrome traces of ``torch.profiler`` (Kineto): where the time of each step went, on one rank and between ranks.

``read`` streams the file, ``parse`` keeps the events that matter, ``steps`` divides each step, ``bandwidth`` compares
the collectives of several ranks.
"""
