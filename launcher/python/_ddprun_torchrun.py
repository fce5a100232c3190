"""Put ddprun in the place of torchrun, for front ends that start PyTorch's launcher as a Python module.

`ddprun.pth` imports this module when an interpreter starts with DDPRUN_AS_TORCHRUN=1, and in no other case. Then
`python -m torch.distributed.run` and `.launch` become ddprun at once, before anything imports torch. In every other process a
finder waits for the import of `torch.distributed.run` and replaces its `main` and `run`. ddprun takes the place of the
process (exec), so nothing after these calls runs, and the exit code is ddprun's.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # typing's own would import typing
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence
    from importlib.abc import InspectLoader
    from importlib.machinery import ModuleSpec
    from types import CodeType, ModuleType

RUN, LAUNCH = "torch.distributed.run", "torch.distributed.launch"


def install() -> None:
    """Become ddprun if this process is `python -m` PyTorch's launcher, else wait for an import of it."""
    module = _module_of_command()
    if module in (RUN, LAUNCH):
        try:
            become_torchrun((_local_rank_option() if module == LAUNCH else []) + sys.argv[1:])
        except OSError as error:  # an exception here would print the traceback of a broken Python
            sys.stderr.write(f"DDPRUN_AS_TORCHRUN: {error}\n")
            sys.stderr.flush()
            os._exit(127 if isinstance(error, FileNotFoundError) else 126)
    sys.meta_path.insert(0, _Finder())


def _module_of_command() -> str | None:
    """Return the module of `python -m`. While site runs, Python has already replaced its name in sys.argv by "-m"."""
    argv, words = getattr(sys, "argv", []), getattr(sys, "orig_argv", [])  # orig_argv: from Python 3.10 on
    if argv[:1] != ["-m"] or len(words) <= len(argv):
        return None
    word: str = words[len(words) - len(argv)]
    return word.partition("m")[2] if word.startswith("-") else word  # -mMODULE, also behind other letters


def become_torchrun(arguments: list[str], environment: dict[str, str] | None = None) -> None:
    """Replace this process by ddprun under the name torchrun. The workers' Python is this one, as with torchrun."""
    from ddprun import find_ddprun

    program = find_ddprun()
    environment = dict(os.environ if environment is None else environment)
    if environment.get("VIRTUAL_ENV", sys.prefix) != sys.prefix:
        del environment["VIRTUAL_ENV"]  # another environment is active than the one that runs
    if sys.executable:
        environment.setdefault("PYTHON_EXEC", sys.executable)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os.execve(program, ["torchrun", *arguments], environment)


def _local_rank_option() -> list[str]:
    """Return the option for torch.distributed.launch without --use_env: the script gets its local rank as an argument."""
    from importlib import metadata

    try:
        old = metadata.version("torch").startswith("1.")
    except metadata.PackageNotFoundError:
        old = False
    return ["--pass_local_rank=" + ("local_rank" if old else "local-rank")]


def _text(value: object) -> str:
    """Return a value as it would be typed; a list is one of --duplicate_stdout_filters, where two commas are one."""
    return ",".join(str(item).replace(",", ",,") for item in value) if isinstance(value, list) else str(value)


def arguments_of(namespace: Namespace, parser: ArgumentParser, environment: dict[str, str]) -> list[str]:
    """Return the arguments that `parser`, torchrun's own, would parse to `namespace`.

    A value that is the parser's default is left out; ddprun has the same defaults and PET_ variables. A variable whose value
    the caller took back is removed from `environment`. Attributes that torchrun has no option for are without effect there
    and here; an option that ddprun lacks is rejected by ddprun.
    """
    given = vars(namespace)
    if not given.get("training_script"):
        raise ValueError("DDPRUN_AS_TORCHRUN: run(args): args.training_script is missing")
    words = [] if given.get("use_env", True) else _local_rank_option()
    for action in parser._actions:  # no public list of them exists
        if not action.option_strings or action.dest not in given or action.dest == "use_env":
            continue
        name, value = max(action.option_strings, key=len), given[action.dest]
        default = None if action.default is None else _text(action.default)
        if (value is None and default is None) or (action.nargs == 0 and bool(value) == bool(action.default)):
            continue
        if value is None or (action.nargs == 0 and not value):
            environment.pop("PET_" + action.dest.upper(), None)
        elif action.nargs == 0:
            words.append(name)
        elif _text(value) != default:
            words.append(f"{name}={_text(value)}")
    return [*words, given["training_script"], *(given.get("training_script_args") or [])]


class _Finder:
    """Finds torch.distributed.run as usual, and hands its loader to _Loader."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != RUN:
            return None
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)  # type: ignore[arg-type, assignment]
        return spec


class _Loader:
    """The module's own loader, which afterwards replaces `main` and `run`."""

    def __init__(self, loader: InspectLoader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)

        def run(args: Namespace) -> None:
            environment = dict(os.environ)
            become_torchrun(arguments_of(args, module.get_args_parser(), environment), environment)

        def main(args: list[str] | None = None) -> None:
            become_torchrun(list(sys.argv[1:] if args is None else args))

        module.run, module.main = run, main  # type: ignore[attr-defined]

    def get_code(self, name: str) -> CodeType:
        """Return what runpy executes for `-m`, in a debugger or in Python 3.9."""
        code: CodeType = compile(f"from {RUN} import main; main()", f"<{name}>", "exec")
        return code
