"""For frameworks whose users would rather name a callback than start their program with ``straggler run``.

Each is a few lines over ``straggler.torch``: it puts the instrument in before the framework wraps the model, says that
the framework's own way of saving is a checkpoint, and says goodbye when training is over. One file for each framework,
imported by the user alone; importing one imports its framework.
"""
