"""A stand-in for PyTorch in tests that start torch's launcher. Each import adds a line to $TORCH_IMPORTS."""
import os

if "TORCH_IMPORTS" in os.environ:
    with open(os.environ["TORCH_IMPORTS"], "a") as file:
        file.write("torch\n")
