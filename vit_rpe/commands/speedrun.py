"""Train small models against the clock with several encodings, the images kept on the device: accuracy per minute.

Made for an accelerator that is at hand for some minutes. The images come packed in a folder of a few files:

  vit-rpe speedrun --pack cifar10 --data.path FOLDER --output cifar10-packed
  vit-rpe speedrun --data.path cifar10-packed --minutes 10

--quick trains each for seconds, to see that all of it runs. Without --data.path it has scikit-learn's digits.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from vit_rpe.commands._options import add_device, add_output, choose_device, positive

if TYPE_CHECKING:
    import torch

    from vit_rpe.study.speedrun.packed import Split
    from vit_rpe.study.speedrun.train import Data, Measured, Recipe

__all__ = ["add_arguments", "run"]

ENCODINGS = ("none", "learned", "bias")
QUICK_SECONDS = 3.0
HEADINGS = "encoding,seed,seconds,epochs,loss,accuracy"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--data.path", dest="path", metavar="DIR", help="packed images; with --pack, the files of the source"
    )
    parser.add_argument("--pack", metavar="SOURCE", help="pack a source such as cifar10 into --output, train nothing")
    parser.add_argument("--minutes", type=positive, metavar="N", help="of training in all, shared equally")
    parser.add_argument("--encodings", nargs="+", metavar="NAME", help=f"default: {' '.join(ENCODINGS)}")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], metavar="N", help="each is a run; default: 0")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_SECONDS:g} seconds a run, nothing compiled")
    add_device(parser)
    add_output(parser, default=None, metavar="DIR", help="of the table and the weights, or of the packed images")


def run(args: argparse.Namespace) -> None:
    """Pack, or train and write ``speedrun.csv`` as results come.

    Raises:
        ValueError: options that contradict each other, or neither a time nor ``--quick``.
    """
    if args.pack is not None:
        _pack(args)
        return
    if args.quick == (args.minutes is not None):
        raise ValueError("give --minutes N, or --quick for a trial")
    if args.path is None and not args.quick:
        raise ValueError("--data.path names packed images: --pack cifar10 --data.path FOLDER --output DIR writes them")
    from vit_rpe.encodings import encoding_class

    encodings = args.encodings or list(ENCODINGS)
    for name in encodings:
        if name != "learned":
            encoding_class(name)
    runs = [(name, seed) for seed in args.seeds for name in encodings]
    device = choose_device(args.device)
    data = _data(args, device)
    seconds = QUICK_SECONDS if args.quick else args.minutes * 60 / len(runs)
    output = Path(args.output or "runs/speedrun")
    output.mkdir(parents=True, exist_ok=True)
    table = output / "speedrun.csv"
    table.write_text(HEADINGS + "\n")
    print(f"{len(runs)} runs of {seconds:.0f} s on {device}, {len(data.labels)} images; {table}")
    for name, seed in runs:
        _one(name, seed, data, seconds, args, table)


def _one(name: str, seed: int, data: Data, seconds: float, args: argparse.Namespace, table: Path) -> None:
    from safetensors.torch import save_file

    from vit_rpe.study.speedrun.train import run as train

    def report(measured: Measured) -> None:
        print(
            f"{name:<16} seed {seed}  {measured.seconds:7.1f} s  epoch {measured.epochs:6.1f}  "
            f"loss {measured.loss:.3f}  test accuracy {measured.accuracy:.2%}",
            flush=True,
        )
        with table.open("a") as file:
            row = (name, seed, *(f"{value:.4f}" for value in measured))
            file.write(",".join(map(str, row)) + "\n")

    recipe = _recipe(name, seed, data, seconds, args)
    model, _ = train("none" if name == "learned" else name, data, recipe, report)
    weights = {key: value.contiguous().cpu() for key, value in model.state_dict().items()}
    save_file(weights, table.parent / f"{name}-seed{seed}.safetensors")


def _recipe(name: str, seed: int, data: Data, seconds: float, args: argparse.Namespace) -> Recipe:
    """0.8 million parameters on 8 x 8 tokens for images of 32 pixels; for smaller ones, tokens of 2 pixels."""
    from vit_rpe.study.speedrun.train import Recipe
    from vit_rpe.training.config.schema import TrainConfig

    train = TrainConfig(
        epochs=100, seed=seed, optimizer="muon", lr=1e-2, weight_decay=0.05, warmup_epochs=3, clip_grad=1.0
    )
    model = "vit_rpe_nano_patch4_32" if data.images.shape[2] >= 16 else "vit_rpe_nano_patch2_8"
    width = {"embed_dim": 64, "depth": 2} if args.quick else {"embed_dim": 128, "depth": 4}
    learned = {"pos_embed": "learned"} if name == "learned" else {}
    return Recipe(
        model=model,
        args={"num_heads": 4, **width, **learned},
        train=train,
        batch_size=64 if args.quick else 512,
        seconds=seconds,
        evaluations=2 if args.quick else 10,
        compiled=not args.quick,
        precision="bf16" if data.images.device.type == "cuda" else "no",
    )


def _data(args: argparse.Namespace, device: torch.device) -> Data:
    from vit_rpe.study.speedrun.packed import read_packed
    from vit_rpe.study.speedrun.train import to_device

    if args.path is None:
        train, test, _ = _splits("digits", None)
    else:
        (train, _), (test, _) = (read_packed(args.path, name) for name in ("train", "test"))
    return to_device(train, test, device)


def _splits(source: str, path: str | None) -> tuple[Split, Split, list[str]]:
    from vit_rpe.data import DataConfig, build_data, image_samples
    from vit_rpe.study.speedrun.packed import split_of

    config = DataConfig(source, **({} if path is None else {"path": path}), augment="none")
    probe = build_data(config, img_size=(32, 32), in_chans=3, seed=0)
    size = image_samples(probe.train).native_size()
    bundle = build_data(config, img_size=size, in_chans=3, seed=0)
    return split_of(bundle.train), split_of(bundle.val), bundle.class_names


def _pack(args: argparse.Namespace) -> None:
    from vit_rpe.study.speedrun.packed import write_packed

    given = [f"--{name}" for name in ("minutes", "encodings", "quick") if getattr(args, name)]
    given += ["--seeds"] if args.seeds != [0] else []
    if given:
        raise ValueError(f"--pack trains nothing: leave out {', '.join(given)}")
    if args.output is None:
        raise ValueError("--pack writes into --output DIR: name it")
    train, test, names = _splits(args.pack, args.path)
    for name, split in (("train", train), ("test", test)):
        for path in write_packed(split, Path(args.output), name, names):
            print(f"{path}  {path.stat().st_size / 2**20:.1f} MB")
