"""Stands for PyTorch where the tests start its launcher. Each import leaves a line in $TORCH_IMPORTS."""
import os

if "TORCH_IMPORTS" in os.environ:
    with open(os.environ["TORCH_IMPORTS"], "a") as file:
        file.write("torch\n")
