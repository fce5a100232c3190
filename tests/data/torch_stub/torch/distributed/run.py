"""A stand-in for torch.distributed.run: a parser with each kind of option, and the functions that the hook
replaces."""
import argparse
import os


class env(argparse.Action):
    def __init__(self, dest, default=None, **kwargs):
        super().__init__(dest=dest, default=os.environ.get("PET_" + dest.upper(), default), **kwargs)

    def __call__(self, parser, namespace, values, option_string=None):
        setattr(namespace, self.dest, values)


class check_env(argparse.Action):
    def __init__(self, dest, default=False, **kwargs):
        default = bool(int(os.environ.get("PET_" + dest.upper(), "0")))
        super().__init__(dest=dest, const=True, default=default, nargs=0, **kwargs)

    def __call__(self, parser, namespace, values, option_string=None):
        setattr(namespace, self.dest, self.const)


def get_args_parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nnodes", action=env, type=str, default="1:1")
    parser.add_argument("--nproc-per-node", "--nproc_per_node", action=env, type=str, default="1")
    parser.add_argument("--rdzv-backend", "--rdzv_backend", action=env, type=str, default="static")
    parser.add_argument("--rdzv-endpoint", "--rdzv_endpoint", action=env, type=str, default="")
    parser.add_argument("--rdzv-conf", "--rdzv_conf", action=env, type=str, default="")
    parser.add_argument("--standalone", action=check_env)
    parser.add_argument("--max-restarts", "--max_restarts", action=env, type=int, default=0)
    parser.add_argument("--monitor-interval", "--monitor_interval", action=env, type=float, default=0.1)
    parser.add_argument("-m", "--module", action=check_env)
    parser.add_argument("--no-python", "--no_python", action=check_env)
    parser.add_argument("-t", "--tee", action=env, type=str, default="0")
    parser.add_argument("--role", action=env, type=str, default="default")
    parser.add_argument("--duplicate-stdout-filters", "--duplicate_stdout_filters", action=env, default=[],
                        type=lambda text: [word.replace("\0", ",") for word in text.replace(",,", "\0").split(",")])
    parser.add_argument("--master-port", "--master_port", action=env, type=int, default=None)
    parser.add_argument("training_script", type=str)
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER)
    return parser


def run(args):
    raise SystemExit("torchrun runs, not ddprun")


def main(args=None):
    run(get_args_parser().parse_args(args))


if __name__ == "__main__":
    main()
