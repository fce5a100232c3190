"""A stand-in for PyTorch in tests that start its launcher. Each import appends a line to the file $TORCH_IMPORTS."""
import os

if "TORCH_IMPORTS" in os.environ:
    with open(os.environ["TORCH_IMPORTS"], "a") as file:
        file.write("torch\n")
