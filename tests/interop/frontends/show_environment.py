"""Print the Python environment, the rank and the world size of the worker."""
import os
import sys

print("result", sys.prefix, os.environ["RANK"], os.environ["WORLD_SIZE"])
