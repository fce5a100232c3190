"""Start jobs of data-parallel workers from Python. run() returns an exit code, launch() the results. torch is not imported.

    def square_of_rank(offset):
        return int(os.environ["RANK"]) ** 2 + offset

    ddprun.launch(square_of_rank, 4, args=(10,))        # [10, 11, 14, 19]
    ddprun.run(["--nproc_per_node=4", "train.py"])      # 0
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import traceback
import types
from pathlib import Path
from typing import Any, Callable, Iterable, Mapping, Sequence, TypeVar

__all__ = ["RankError", "find_ddprun", "launch", "run"]

T = TypeVar("T")
_ADVICE = "install cloudpickle, or put the function at the top level of a module"
_WORKER = (  # sys.path begins with the working directory (python -c), so replace it before ddprun is imported
    "import os, sys; sys.path[:] = os.fsdecode(open(sys.argv[1] + '/path', 'rb').read()).split('\\0'); "
    "import ddprun; ddprun._work(sys.argv[1])")
_pickler = importlib.import_module("cloudpickle" if importlib.util.find_spec("cloudpickle") else "pickle")
_loading_main = False  # true while a worker executes the user's script to find the functions in it


class _MainLoaded(BaseException):
    """Ends the user's script in a worker at the first call of launch()."""


class RankError(RuntimeError):
    """The failure of the worker `rank`. `text` is the worker's traceback, or how the worker ended."""

    def __init__(self, rank: int, text: str) -> None:
        super().__init__(rank, text)
        self.rank, self.text = rank, text

    def __str__(self) -> str:
        return f"rank {self.rank}: {self.text}"


def find_ddprun() -> str:
    """Return the path of ddprun. Search beside this Python, in the directories where pip puts scripts, and in PATH."""
    places = [
        os.path.dirname(sys.executable or ""),
        sysconfig.get_path("scripts"),
        sysconfig.get_path("scripts", "posix_user"),
        os.path.join(os.path.dirname(os.path.dirname(__file__)), "bin"),  # pip install --target
        os.environ.get("PATH", os.defpath),
    ]
    found = shutil.which("ddprun", path=os.pathsep.join(filter(None, places)))
    if found is None:
        raise FileNotFoundError(f"ddprun: not found beside {sys.executable}, in {places[1]} or in PATH; pip install ddprun")
    return found


def run(args: Sequence[str], *, env: Mapping[str, str] | None = None, timeout: float | None = None) -> int:
    """Run `ddprun ARGS` to its end and return its exit code. If `args` is a string, the string is split at blanks.

    `env` has additional variables for the job. After `timeout` seconds the job is stopped, and subprocess.TimeoutExpired is
    raised. Ctrl-C stops the job, too, and a second Ctrl-C kills it. No process of the job is left when this function ends.
    """
    handler = signal.getsignal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else None
    try:
        # A terminal sends SIGINT to this process and to ddprun. Other senders send SIGINT only to this process. In both cases
        # ddprun ignores SIGINT and gets one SIGTERM from this process. A second signal would make ddprun kill the workers.
        if handler is not None:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        process = subprocess.Popen([find_ddprun(), *(args.split() if isinstance(args, str) else args)], env={**os.environ, **(env or {})})
    finally:
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
    try:
        code = process.wait(timeout)
    except BaseException:
        try:
            process.terminate()
            process.wait()
        finally:  # after a second Ctrl-C, send a second SIGTERM
            process.terminate()
            process.wait()
        raise
    return code if code >= 0 else 128 - code


def launch(
    function: Callable[..., T], nproc: int | str, args: Iterable[Any] = (), kwargs: Mapping[str, Any] | None = None, *,
    env: Mapping[str, str] | None = None, timeout: float | None = None, log_dir: str | os.PathLike[str] | None = None,
    options: Sequence[str] = (),
) -> list[T]:
    """Call `function(*args, **kwargs)` in `nproc` workers on this node, and return the results in the order of ranks.

    `nproc` is a number, "gpu", "cpu" or "auto". The workers have torchrun's variables (RANK, WORLD_SIZE, MASTER_ADDR, ...), so
    torch.distributed.init_process_group() works. `env` and `timeout` are as in run(), `log_dir` is --log_dir, and `options` are
    other options of ddprun, such as ["--max_restarts=2"], or a string as in run().

    Function, arguments and results are pickled by cloudpickle if it is installed, because cloudpickle handles lambdas and
    functions of notebooks. Otherwise the function must be at the top level of a module or of the script. If the script defines
    the function, each worker executes the script as `__mp_main__`, at most up to the script's first call of launch().

    An exception in a worker stops the job. This function raises the exception of the rank that failed first, with a RankError
    (rank and traceback) as the __cause__ of the exception. If a worker ended in another way, for example by a signal, this
    function raises the RankError itself. If the job failed but no worker failed, subprocess.CalledProcessError is raised.
    """
    if _loading_main:
        raise _MainLoaded
    sys.modules.setdefault("__mp_main__", sys.modules["__main__"])
    call = _call(function, tuple(args), dict(kwargs or {}))
    with tempfile.TemporaryDirectory(prefix="ddprun-") as name:
        directory = Path(name)
        (directory / "path").write_bytes(os.fsencode("\0".join(map(str, sys.path))))
        (directory / "call").write_bytes(call)
        command = ["--standalone", "--nnodes=1", "--scheduler=none", f"--nproc_per_node={nproc}", f"--events={name}/events"]
        command += [f"--log_dir={os.fspath(log_dir)}"] if log_dir is not None else []
        command += [*(options.split() if isinstance(options, str) else options), "--no_python", sys.executable, "-u", "-c", _WORKER, name]
        code = run(command, env=env, timeout=timeout)
        if code != 0:
            _raise_failure(directory, code, command)
        ranks = range(len(list(directory.glob("rank-*"))))
        outcomes = [pickle.loads((directory / f"rank-{rank}").read_bytes()) for rank in ranks]
        for rank in ranks:
            if not outcomes[rank][0]:
                raise RankError(rank, "exited with code 0 before its function returned")
        return [pickle.loads(result) for _, result, _ in outcomes]


def _call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """Pickle the script (None if no worker must execute it), the script's package and arguments, and the pickled call."""
    main, script = sys.modules["__main__"], None
    try:
        call = _pickler.dumps((function, args, kwargs))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise TypeError(f"ddprun.launch: cannot pickle the call of {function!r}: {error}; {_ADVICE}") from error
    if _pickler is pickle and b"_main__" in call:  # __main__, or __mp_main__ in a worker that calls launch()
        if getattr(main, "__file__", None) is None:
            raise TypeError(f"ddprun.launch: {function!r} is in no file that a worker could execute; {_ADVICE}")
        script = os.path.abspath(str(main.__file__))
    return pickle.dumps((script, main.__package__, sys.argv, call))


def _load_main(script: str, package: str | None) -> None:
    """Execute the script under the name that multiprocessing uses, so that `if __name__ == "__main__"` is false."""
    global _loading_main
    main = types.ModuleType("__mp_main__")
    main.__file__, main.__package__ = script, package
    sys.modules["__main__"] = sys.modules["__mp_main__"] = main
    _loading_main = True
    with contextlib.suppress(_MainLoaded):
        exec(compile(Path(script).read_bytes(), script, "exec"), main.__dict__)
    _loading_main = False


def _work(directory: str) -> None:
    """Call the function in a worker. Write a file with (returned, pickled result or exception, traceback)."""
    place = Path(directory) / ("rank-" + os.environ["RANK"])
    place.write_bytes(pickle.dumps((False, b"", "")))  # replaces the file of an earlier attempt
    script, package, sys.argv, call = pickle.loads((Path(directory) / "call").read_bytes())
    try:
        if script is not None:
            _load_main(script, package)
        function, args, kwargs = pickle.loads(call)
        place.write_bytes(pickle.dumps((True, _pickler.dumps(function(*args, **kwargs)), "")))
    except Exception as error:
        text, pickled = traceback.format_exc(), b""
        try:
            pickled = _pickler.dumps(error)
        finally:
            place.write_bytes(pickle.dumps((False, pickled, text)))
        raise


def _raise_failure(directory: Path, code: int, command: list[str]) -> None:
    """Raise the exception of the rank that failed first, or a RankError that describes how the rank ended."""
    log = directory / "events"
    lines = log.read_text("utf-8").splitlines() if log.exists() else []
    events: list[dict[str, Any]] = [event for event in map(json.loads, lines) if event["event"] == "worker_ended"]
    for verdict in ("failed", "not_started", "victim"):
        for event in (e for e in events if e["verdict"] == verdict and e["round"] == events[-1]["round"]):
            failure = RankError(event["rank"], event["ending"])
            try:
                _, pickled, text = pickle.loads((directory / f"rank-{event['rank']}").read_bytes())
                failure = RankError(event["rank"], text or event["ending"])
                error = pickle.loads(pickled)
            except Exception:
                raise failure from None
            raise error from failure
    raise subprocess.CalledProcessError(code, ["ddprun", *command])
