"""Own time of a PyTorch job, measured from outside: no line of the training code is touched.

``instrument()`` patches a handful of places once per process (``patches.py`` lists them) and publishes one record per
optimizer step through the ordinary hook. How own time comes out right under DDP and FSDP is told in ``waits.py``.
"""
