"""A stand-in for torch.distributed.launch."""
from torch.distributed.run import get_args_parser, run


def main(args=None):
    parser = get_args_parser()
    parser.add_argument("--use-env", "--use_env", default=False, action="store_true")
    run(parser.parse_args(args))


if __name__ == "__main__":
    main()
