"""The tests that shell/test_python.sh runs with each Python: for the module ddprun, and for the hook that runs ddprun
in place of torchrun.

Python runs in a virtual environment. Its site-packages has launcher/python and a stub of torch, and its bin/ has
ddprun.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

CLOUDPICKLE = os.environ.get("DDP_CLOUDPICKLE")  # a directory with the package cloudpickle
SHOW = """\
import json, os, sys
print(json.dumps({"argv": sys.argv[1:], "prefix": sys.prefix, "rank": os.environ["RANK"], "world": os.environ["WORLD_SIZE"],
                  "role": os.environ["ROLE_NAME"], "restarts": os.environ["TORCHELASTIC_MAX_RESTARTS"],
                  "marker": os.environ.get("MARKER")}))
"""


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


class Case(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.here = pathlib.Path(self.directory.name)

    def write(self, name, text):
        (self.here / name).write_text(textwrap.dedent(text))
        return name

    def python(self, *words, code=0, **env):
        """Run this Python. Return its stdout, and keep its stderr in self.stderr."""
        done = subprocess.run([sys.executable, *words], cwd=self.here, env={**os.environ, **env}, timeout=60,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.stderr = done.stderr
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout

    def wait_for(self, *names):
        for _ in range(600):
            if all((self.here / name).exists() for name in names):
                return
            time.sleep(0.05)
        self.fail(f"{names} did not appear: {os.listdir(self.here)}")


class Module(Case):
    def script(self, text, **more):
        return self.python(self.write("script.py", "import os, sys, time, ddprun\n" + textwrap.dedent(text)), **more)

    def test_run_returns_the_exit_code(self):
        out = self.script("""
            print(ddprun.run(["-q", "--no_python", "sh", "-c", "exit $CODE"], env={"CODE": "7"}), ddprun.run(["--no-such-option"]))
        """)
        self.assertEqual(out, "7 2\n")

    def test_run_splits_a_string(self):
        self.assertEqual(self.script("print(ddprun.run('-q --nproc_per_node=2 true'))"), "0\n")

    def test_run_stops_at_the_timeout(self):
        out = self.script("""
            import subprocess
            try:
                ddprun.run(["-q", "sh", "-c", "echo $$ >pid; exec sleep 100"], timeout=4)
            except subprocess.TimeoutExpired as error:
                print("after", error.timeout)
        """)
        self.assertEqual(out, "after 4\n")
        self.assertTrue(gone(int((self.here / "pid").read_text())))

    def test_results_by_rank_of_an_unguarded_script(self):
        # With cloudpickle, the class is sent by value. Without it, each worker executes the script up to launch().
        for path in {"", CLOUDPICKLE or ""}:
            self.results(path)

    def results(self, path):
        out = self.script("""
            open(f"executed-{os.environ.get('RANK', 'parent')}", "a").close()
            class Point:
                def __init__(self, x):
                    self.x = x
            def place(offset, scale=1):
                assert "torch" not in sys.modules
                return Point(int(os.environ["RANK"]) * scale + offset.x)
            points = ddprun.launch(place, 3, (Point(10),), {"scale": 2}, options=["-q"])
            print([p.x for p in points], {type(p) is Point for p in points}, sys.argv[1:])
        """, PYTHONPATH=path)
        self.assertEqual(out, "[10, 12, 14] {True} []\n")
        self.assertEqual((self.here / "executed-2").exists(), path == "")
        for name in self.here.glob("executed-*"):
            name.unlink()

    def test_function_of_a_module_leaves_the_script_alone(self):
        self.write("mine.py", "import os\ndef world():\n    return os.environ['WORLD_SIZE'], os.environ['MINE']\n")
        out = self.script("""
            import mine
            assert "RANK" not in os.environ, "a worker executes the script"
            print(ddprun.launch(mine.world, "2", env={"MINE": "x"}))
        """)
        self.assertEqual(out, "[('2', 'x'), ('2', 'x')]\n")

    def test_function_of_a_package_with_relative_imports(self):
        (self.here / "pack").mkdir()
        self.write("pack/__init__.py", "")
        self.write("pack/part.py", "VALUE = 5\n")
        self.write("pack/__main__.py", """
            import ddprun
            from .part import VALUE
            def value():
                return VALUE
            print(ddprun.launch(value, 2, options=["-q"]))
        """)
        self.assertEqual(self.python("-m", "pack"), "[5, 5]\n")

    def test_working_directory_is_not_imported(self):
        (self.here / "scripts").mkdir()
        self.write("json.py", "raise SystemExit('json of the working directory')")
        self.write("scripts/script.py", """
            import ddprun, os
            def rank():
                return os.environ["RANK"]
            print(ddprun.launch(rank, 2, options="-q --max_restarts=1"))
        """)
        self.assertEqual(self.python("scripts/script.py"), "['0', '1']\n")

    def test_launch_in_a_worker(self):
        out = self.script("""
            def inner():
                return os.environ["WORLD_SIZE"]
            def outer():
                return ddprun.launch(inner, 2, options=["-q"])
            print(ddprun.launch(outer, 1, options=["-q"]))
        """)
        self.assertEqual(out, "[['2', '2']]\n")

    def test_lambda_needs_cloudpickle(self):
        lines = "try:\n    print(ddprun.launch(lambda: 4, 2, options=['-q']))\nexcept TypeError as error:\n    print(error)\n"
        self.assertIn("install cloudpickle", self.script(lines))
        self.assertIn("install cloudpickle", self.python("-c", "import ddprun\ndef f(): pass\n" + lines.replace("lambda: 4", "f")))

    @unittest.skipUnless(CLOUDPICKLE, "cloudpickle is not installed")
    def test_notebook_with_cloudpickle(self):
        lines = "import ddprun, os\ndef f(x): return x + int(os.environ['RANK'])\n"
        out = self.python("-c", lines + "print(ddprun.launch(f, 2, (5,)), ddprun.launch(lambda: 4, 2))", PYTHONPATH=CLOUDPICKLE)
        self.assertEqual(out, "[5, 6] [4, 4]\n")

    def test_exception_of_the_first_failing_rank(self):
        out = self.script("""
            class Mine(Exception):
                pass
            def fail():
                if os.environ["RANK"] == "1":
                    raise Mine("not today")
                time.sleep(100)
            try:
                ddprun.launch(fail, 2, options=["-q"])
            except Mine as error:
                print(error, type(error.__cause__).__name__, error.__cause__.rank)
                assert 'raise Mine("not today")' in error.__cause__.text or sys.version_info < (3, 10), error.__cause__.text
        """)
        self.assertEqual(out, "not today RankError 1\n")

    def test_exception_that_cannot_be_pickled(self):
        out = self.script("""
            def fail():
                class Local(Exception):
                    def __reduce__(self):
                        raise TypeError("never")
                raise Local("x")
            try:
                ddprun.launch(fail, 1, options=["-q"])
            except ddprun.RankError as error:
                print(error.rank, error.text.splitlines()[-1].endswith("Local: x"))
        """)
        self.assertEqual(out, "0 True\n")

    def test_worker_that_ends_without_an_exception(self):
        out = self.script("""
            def die(how):
                if os.environ["RANK"] == "1":
                    how()
                time.sleep(100 if how is not leave else 0)
            def crash():
                os.kill(os.getpid(), 9)
            def leave():
                os._exit(0)
            def quit():
                sys.exit(5)
            for how in crash, quit, leave:
                try:
                    ddprun.launch(die, 2, (how,), options=["-q"])
                except ddprun.RankError as error:
                    print(error)
        """).splitlines()
        self.assertEqual([line.split(" (")[0] for line in out], [
            "rank 1: killed by SIGKILL", "rank 1: exit 5", "rank 1: exited with code 0 before its function returned"])

    def test_job_that_cannot_start(self):
        out = self.script("""
            import subprocess
            def f(): pass
            for options in ["--nnodes=2"], ["--no-such-option"]:
                try:
                    ddprun.launch(f, 1, options=options)
                except subprocess.CalledProcessError as error:
                    print(error.returncode)
        """)
        self.assertEqual(out, "2\n2\n")
        self.assertIn("--nnodes", self.stderr)

    def test_restart_and_log_dir(self):
        out = self.script("""
            def again():
                print("attempt", os.environ["TORCHELASTIC_RESTART_COUNT"])
                if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
                    raise ValueError("first time")
                return os.environ["TORCHELASTIC_RESTART_COUNT"]
            print(ddprun.launch(again, 2, log_dir="logs", options=["-q", "--max_restarts=1", "--restart_backoff=10ms", "--redirects=3"]))
        """)
        self.assertEqual(out, "['1', '1']\n")
        self.assertEqual(len(list(self.here.glob("logs/*/attempt_1/?/stdout.log"))), 2 * 2)  # twice, due to `latest`

    def interrupted(self, group, times=1):
        self.write("script.py", """
            import ddprun, os, pathlib, signal, sys, time
            def work():
                def stop(number, frame):
                    with open("stopped", "a") as file:
                        file.write(f"{number} ")
                    pathlib.Path("counted").touch()
                    if os.environ.get("STUBBORN") is None:
                        sys.exit(0)
                signal.signal(signal.SIGTERM, stop)
                pathlib.Path("pid").write_text(str(os.getpid()))
                pathlib.Path("up").touch()
                while True:
                    time.sleep(1)
            try:
                ddprun.launch(work, 1)
            except KeyboardInterrupt:
                print("interrupted")
        """)
        env = dict(os.environ, **({"STUBBORN": "1"} if times > 1 else {}))
        with subprocess.Popen([sys.executable, "script.py"], cwd=self.here, env=env, start_new_session=True, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            self.wait_for("up")
            for i in range(times):
                (os.killpg if group else os.kill)(process.pid, signal.SIGINT)
                if i + 1 < times:
                    self.wait_for("counted")
            out, err = process.communicate(timeout=60)
        self.assertEqual(out, "interrupted\n", err)
        self.assertEqual((self.here / "stopped").read_text(), "15 ")
        self.assertTrue(gone(int((self.here / "pid").read_text())))
        return err

    def test_ctrl_c_of_a_terminal(self):
        self.assertNotIn("killing", self.interrupted(group=True))

    def test_sigint_for_python_alone(self):
        self.assertNotIn("killing", self.interrupted(group=False))

    def test_second_ctrl_c_kills(self):
        self.assertIn("again: killing", self.interrupted(group=True, times=2))

    def test_ddprun_is_missing(self):
        environment = {"PATH": "/nowhere", "HOME": str(self.here)}
        program = pathlib.Path(sys.executable).parent / "ddprun"
        hidden = program.with_name("hidden")
        program.rename(hidden)
        try:
            self.python("-c", "import ddprun; ddprun.run([])", code=1, **environment)
            self.assertRegex(self.stderr, "FileNotFoundError: ddprun: not found beside .*; pip install ddprun")
            for words in (["-m", "torch.distributed.run", "x.py"], ["-m", "torch.distributed.launch", "x.py"]):
                self.python(*words, code=127 if sys.version_info >= (3, 10) else 1, DDPRUN_AS_TORCHRUN="1", **environment)
                self.assertRegex(self.stderr, "ddprun: not found beside .*; pip install ddprun")
        finally:
            hidden.rename(program)


class Hook(Case):
    def setUp(self):
        super().setUp()
        (self.here / "show").write_text(SHOW)
        self.imports = self.here / "imports"

    def shown(self, *words, n=2, **env):
        """Return the lines of the workers in the order of ranks. `show` has no suffix .py, so only
        the name torchrun makes it run with Python."""
        out = self.python(*words, DDPRUN_AS_TORCHRUN="1", TORCH_IMPORTS=str(self.imports), OMP_NUM_THREADS="1", **env)
        lines = sorted((json.loads(line) for line in out.splitlines()), key=lambda line: int(line["rank"]))
        self.assertEqual([line["world"] for line in lines], [str(n)] * n)
        self.assertEqual({line["prefix"] for line in lines}, {sys.prefix})
        return lines

    def test_python_m(self):
        for words in (["-m", "torch.distributed.run"], ["-um", "torch.distributed.run"], ["-X", "dev", "-mtorch.distributed.run"]):
            lines = self.shown(*words, "--nproc_per_node=2", "--role", "r", "show", "--nproc_per_node=3", "a b", "")
            self.assertEqual(lines[0]["argv"], ["--nproc_per_node=3", "a b", ""])
            self.assertEqual(lines[0]["role"], "r")
        # From Python 3.10 on, neither this process nor a worker imports torch.
        self.assertEqual(self.imports.exists(), sys.version_info < (3, 10))

    def test_launch_passes_the_local_rank(self):
        for words, argv in (([], ["--local-rank=1", "x"]), (["--use_env"], ["x"]), (["--use-env"], ["x"])):
            lines = self.shown("-m", "torch.distributed.launch", "--nproc_per_node=2", *words, "show", "x")
            self.assertEqual(lines[1]["argv"], argv)

    def test_workers_get_this_python(self):
        """Workers do not use the Python of another environment that is active."""
        other = self.here / "other" / "bin"
        other.mkdir(parents=True)
        (other / "python").write_text("#!/bin/sh\nexit 9\n")
        (other / "python").chmod(0o755)
        self.shown("-m", "torch.distributed.run", "--nproc_per_node=2", "show", VIRTUAL_ENV=str(other.parent))

    def test_main_takes_arguments(self):
        code = "from torch.distributed.run import main; main({})"
        self.assertEqual(len(self.shown("-c", code.format('["--nproc_per_node=2", "--fold", "show"]'))), 2)
        self.assertEqual(len(self.shown("-c", code.format(""), "--nproc_per_node=2", "show")), 2)

    def test_torchrun_of_pip(self):
        self.write("torchrun", "from torch.distributed.run import main\nimport sys\nsys.exit(main())\n")
        self.assertEqual(len(self.shown("torchrun", "--nproc_per_node=2", "show")), 2)

    def test_runpy(self):
        self.write("debugger.py", "import runpy; runpy.run_module('torch.distributed.run', run_name='__main__')")
        self.assertEqual(len(self.shown("debugger.py", "--nproc_per_node=2", "show")), 2)

    def test_run_takes_a_namespace(self):
        # Like accelerate, start with the defaults of torchrun's parser. Then set attributes, some with other types,
        # and change the environment.
        self.write("front.py", """
            import os, sys
            import torch.distributed.run as distrib_run
            args, _ = distrib_run.get_args_parser().parse_known_args(["--training_script", "show"])
            args.training_script, args.training_script_args = "show", ["--x", "1 2"]
            args.nproc_per_node, args.max_restarts, args.role, args.mine = 2, "3", "front", object()
            os.environ["MARKER"] = "patched"
            print("{}", end="", file=open("before", "w"))
            distrib_run.run(args)
            open("after", "w")
        """)
        line = self.shown("front.py")[0]
        self.assertEqual((line["argv"], line["restarts"], line["role"], line["marker"]), (["--x", "1 2"], "3", "front", "patched"))
        self.assertTrue((self.here / "before").exists() and not (self.here / "after").exists())

    def test_launch_main(self):
        code = "from torch.distributed.launch import main; main(['--nproc_per_node=2', 'show'])"
        self.assertEqual(self.shown("-c", code)[1]["argv"], ["--local-rank=1"])

    def test_exit_code_and_signals(self):
        self.python("-m", "torch.distributed.run", "--no_python", "sh", "-c", "exit 9", code=9, DDPRUN_AS_TORCHRUN="1")
        self.write("front.py", "import torch.distributed.run as r; r.main(['--no_python', 'sh', '-c', 'exec grep SigIgn /proc/self/status'])")
        ignored = int(self.python("front.py", DDPRUN_AS_TORCHRUN="1").split()[1], 16)
        plain = int(subprocess.check_output(["grep", "SigIgn", "/proc/self/status"], text=True).split()[1], 16)
        self.assertEqual(ignored & ~plain, 0, "a worker ignores signals that Python ignores")

    def test_namespace_without_script(self):
        code = "import torch.distributed.run as r, argparse; r.run(argparse.Namespace(nproc_per_node=2))"
        self.python("-c", code, code=1, DDPRUN_AS_TORCHRUN="1")
        self.assertIn("args.training_script is missing", self.stderr)

    def test_option_that_ddprun_lacks(self):
        self.python("-c", "import torch.distributed.run as r, argparse\n"
                    "def parser():\n p = old(); p.add_argument('--from-the-future'); return p\n"
                    "old, r.get_args_parser = r.get_args_parser, parser\n"
                    "r.run(parser().parse_args(['--from-the-future=1', 'show']))", code=2, DDPRUN_AS_TORCHRUN="1")
        self.assertIn("--from-the-future", self.stderr)

    def test_namespaces_come_back_as_they_were(self):
        """The result of arguments_of() is parsed to the same namespace. torch's own parser is used if torch is
        installed."""
        self.write("back.py", """
            import itertools, os, sys
            from _ddprun_torchrun import arguments_of
            import torch.distributed.run as r
            groups = [
                [[], ["--nproc_per_node=gpu"], ["--nproc_per_node=1", "--nnodes", "1"], ["--nproc_per_node=2", "--nnodes=2:4"]],
                [[], ["--standalone"], ["--rdzv_backend=c10d", "--rdzv_endpoint=[::1]:5", "--rdzv_conf=a=b,c=d"]],
                [[], ["--max_restarts=3", "--monitor_interval=5"], ["--max_restarts=0", "--monitor_interval=0.1"]],
                [[], ["--tee=0:3,1:1", "--role=", "--module"], ["--master_port=29500", "--no_python"]],
            ]
            if any(a.dest == "duplicate_stdout_filters" for a in r.get_args_parser()._actions):
                groups.append([[], ["--duplicate_stdout_filters=a,b", "--role=r s"], ["--duplicate_stdout_filters=a,,b,c"]])
            n = 0
            for pets in ({}, {"PET_NPROC_PER_NODE": "2", "PET_STANDALONE": "1", "PET_MAX_RESTARTS": "3"}):
                for choice in itertools.product(*groups):
                    os.environ.update(pets)
                    words = list(itertools.chain(*choice)) + ["show", "--role=x", "", "-m"]
                    want = r.get_args_parser().parse_args(words)
                    if n % 2:
                        want.standalone = False
                    before = dict(vars(want))
                    environment = dict(os.environ)
                    words = arguments_of(want, r.get_args_parser(), environment)
                    for name in pets:
                        if name not in environment:
                            del os.environ[name]
                    got = r.get_args_parser().parse_args(words)
                    assert vars(got) == before == vars(want), (words, got, want)
                    n += 1
            print(n)
        """)
        self.assertGreaterEqual(int(self.python("back.py")), 2 * 4 * 3 * 3 * 3)

    def test_off(self):
        """Without the variable, torchrun runs. The interpreter then imports no more modules than with an empty .pth
        file."""
        for env in ({}, {"DDPRUN_AS_TORCHRUN": ""}, {"DDPRUN_AS_TORCHRUN": "0"}):
            self.python("-m", "torch.distributed.run", "show", code=1, **env)
            self.assertIn("torchrun runs, not ddprun", self.stderr)
        modules = "import sys; print(sorted(sys.modules), sys.meta_path)"
        with_pth = self.python("-c", modules)
        pth = pathlib.Path(next(path for path in sys.path if path.endswith("site-packages"))) / "ddprun.pth"
        line = pth.read_text()
        pth.write_text("# site reads any such file\n")
        try:
            without = self.python("-c", modules)
        finally:
            pth.write_text(line)
        self.assertEqual(*(text.split("0x")[0] for text in (with_pth, without)))
        self.assertNotIn("_ddprun_torchrun", with_pth)

    def test_on_imports_little(self):
        names = self.python("-c", "import sys; print('_ddprun_torchrun' in sys.modules, 'ddprun' in sys.modules, 'torch' in sys.modules,"
                            "'subprocess' in sys.modules)", DDPRUN_AS_TORCHRUN="1")
        self.assertEqual(names, "True False False False\n")


if __name__ == "__main__":
    unittest.main()
