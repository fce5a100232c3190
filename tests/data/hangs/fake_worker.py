"""A job without PyTorch whose rank CULPRIT sleeps after some steps while the others wait; fake_py_spy.py says where they are.

With STEPS=1 all ranks print steps until they are stopped."""
import os
import threading
import time

for step in range(1000000 if os.environ["STEPS"] == "1" else 8):
    print(f"step {step} loss {1 / (step + 1):.3f}", flush=True)
    time.sleep(0.02)
if os.environ["RANK"] == os.environ["CULPRIT"]:
    print("pid", os.getpid(), flush=True)
    time.sleep(1000000)
threading.Event().wait()
