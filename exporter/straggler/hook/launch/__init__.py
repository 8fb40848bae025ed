"""How the PyTorch instrument gets into programs that do not know of it.

``straggler run`` sets two variables and becomes the program. ``STRAGGLER_TORCH`` asks for the instrument.
``PYTHONPATH`` leads every Python that is started from there to ``on_path/sitecustomize.py``, which waits for ``import
torch``. Where this package is installed, torch (2.5 and newer) finds ``straggler_autoload`` by itself and the first
variable is enough. Both end in ``begin``, which puts the instrument in once; the first optimizer step decides in
``rank`` whether there is anything to measure.
"""
