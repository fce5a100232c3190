"""Prints which environment the worker's Python is of."""
import os
import sys

print("result", sys.prefix, os.environ["RANK"], os.environ["WORLD_SIZE"])
