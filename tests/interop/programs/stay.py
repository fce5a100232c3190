"""Run the program, if any. Then wait until the file $GATE exists. Meanwhile, a test queries the store of the job.

    stay.py [PROGRAM [ARGUMENT...]]
"""
import os
import runpy
import sys
import time

if __name__ == "__main__":
    del sys.argv[0]
    try:
        if sys.argv:
            sys.path[0] = os.path.dirname(sys.argv[0])
            runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            raise
    print("rank %s stays" % os.environ["RANK"], flush=True)
    while not os.path.exists(os.environ["GATE"]):
        time.sleep(0.05)
