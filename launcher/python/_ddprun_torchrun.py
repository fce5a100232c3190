"""Run ddprun instead of torchrun, for front ends that start PyTorch's launcher as a Python module.

`ddprun.pth` imports this module only if an interpreter starts with DDPRUN_AS_TORCHRUN=1. The process becomes ddprun (exec), so that
no later code of the process is executed, and the exit code is ddprun's.
"""

# A process that runs `python -m torch.distributed.run` or `.launch` becomes ddprun at once, before any module imports torch. In
# every other process, a finder waits for the import of `torch.distributed.run`, and replaces the functions `main` and `run` of this
# module. Both functions replace the process by ddprun.

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # typing.TYPE_CHECKING would import typing
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence
    from importlib.abc import InspectLoader
    from importlib.machinery import ModuleSpec
    from types import CodeType, ModuleType

RUN, LAUNCH = "torch.distributed.run", "torch.distributed.launch"


def install() -> None:
    """Become ddprun if this process runs PyTorch's launcher with `python -m`. Otherwise wait for an import of the launcher."""
    module = _module_of_command()
    if module in (RUN, LAUNCH):
        try:
            become_torchrun((_local_rank_option() if module == LAUNCH else []) + sys.argv[1:])
        except OSError as error:  # an exception here would print a misleading traceback
            sys.stderr.write(f"DDPRUN_AS_TORCHRUN: {error}\n")
            sys.stderr.flush()
            os._exit(127 if isinstance(error, FileNotFoundError) else 126)
    sys.meta_path.insert(0, _Finder())


def _module_of_command() -> str | None:
    """Return the module of `python -m`. While site runs, sys.argv has "-m" in its place, so use orig_argv."""
    argv, words = getattr(sys, "argv", []), getattr(sys, "orig_argv", [])  # orig_argv exists from Python 3.10 on
    if argv[:1] != ["-m"] or len(words) <= len(argv):
        return None
    word: str = words[len(words) - len(argv)]
    return word.partition("m")[2] if word.startswith("-") else word  # -mMODULE, or with other options before the m: -umMODULE


def become_torchrun(arguments: list[str], environment: dict[str, str] | None = None) -> None:
    """Replace this process by ddprun under the name torchrun. The workers use this process's Python, as with torchrun."""
    from ddprun import find_ddprun

    program = find_ddprun()
    environment = dict(os.environ if environment is None else environment)
    if environment.get("VIRTUAL_ENV", sys.prefix) != sys.prefix:
        del environment["VIRTUAL_ENV"]  # this Python does not belong to the active environment
    if sys.executable:
        environment.setdefault("PYTHON_EXEC", sys.executable)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os.execve(program, ["torchrun", *arguments], environment)


def _local_rank_option() -> list[str]:
    """Return the option that passes the local rank as an argument, as torch.distributed.launch does without --use_env."""
    from importlib import metadata

    try:
        old = metadata.version("torch").startswith("1.")
    except metadata.PackageNotFoundError:
        old = False
    return ["--pass_local_rank=" + ("local_rank" if old else "local-rank")]


def _text(value: object) -> str:
    """Return a value as a user would type it. A list is a value of --duplicate_stdout_filters, where ",," means a comma."""
    return ",".join(str(item).replace(",", ",,") for item in value) if isinstance(value, list) else str(value)


def arguments_of(namespace: Namespace, parser: ArgumentParser, environment: dict[str, str]) -> list[str]:
    """Return the arguments that torchrun's own `parser` would parse to `namespace`.

    The parser's default values are left out, because ddprun has the same defaults and PET_ variables. If the caller has reset
    a value that came from a PET_ variable, the variable is removed from `environment`. Attributes that belong to no option of
    torchrun have no effect, as in torchrun. ddprun itself rejects options that ddprun does not have.
    """
    given = vars(namespace)
    if not given.get("training_script"):
        raise ValueError("DDPRUN_AS_TORCHRUN: run(args): args.training_script is missing")
    words = [] if given.get("use_env", True) else _local_rank_option()
    for action in parser._actions:  # the parser has no public list of its options
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
    """Find torch.distributed.run as usual, and wrap its loader in a _Loader."""

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
    """Load the module with its own loader, then replace its `main` and `run`."""

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
        """Return the code that runpy executes for `-m` in a debugger, or in Python 3.9."""
        code: CodeType = compile(f"from {RUN} import main; main()", f"<{name}>", "exec")
        return code
