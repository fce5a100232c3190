"""Print the environment of the worker's Python."""
import os
import sys

print("result", sys.prefix, os.environ["RANK"], os.environ["WORLD_SIZE"])
