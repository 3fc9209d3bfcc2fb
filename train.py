"""Train a vision transformer: parse a config, build, run.

    python train.py                                          # handwritten digits, relative position bias
    python train.py --config cifar10/vit_tiny_bias --model.rpe rope
    accelerate launch train.py --config imagenet/vit_small_bias --data.path DIR

The same command is ``vit-rpe train``. ``--help`` lists the options, ``--print_config`` shows what would run.
"""

import sys

from vit_rpe.cli import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
