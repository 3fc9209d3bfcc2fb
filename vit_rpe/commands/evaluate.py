"""Evaluate a checkpoint: top-1 and top-5 accuracy, calibration error, accuracy per class; bits per character of a
language model.

The checkpoint knows its data, classes and preprocessing; other data with the same classes can be named instead.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from vit_rpe.checks import check_count
from vit_rpe.commands._options import add_checkpoint, add_device, add_img_size, choose_device, image_size

if TYPE_CHECKING:
    from vit_rpe.evaluation.trained_data import Measured
    from vit_rpe.training.checkpoint.checkpoint import LoadedCheckpoint

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_checkpoint(parser)
    add_img_size(parser)
    parser.add_argument("--data.name", dest="data_name", metavar="NAME", help="other data than it was trained on")
    parser.add_argument("--data.path", dest="data_path", metavar="PATH", help="where the data lie")
    parser.add_argument("--split", choices=("val", "train"), default="val", help="which images (default: val)")
    parser.add_argument("--batch-size", type=int, help="images per step; default: as in training")
    parser.add_argument("--workers", type=int, help="loader processes; default: as in training")
    add_device(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--confusion", metavar="FILE", help="draw the confusion matrix into this picture")


def run(args: argparse.Namespace) -> None:
    """Evaluate and print."""
    if args.batch_size is not None:
        check_count("--batch-size", args.batch_size)
    if args.workers is not None and args.workers < 0:
        raise ValueError(f"--workers must be at least 0, got {args.workers}")
    if args.confusion:
        import matplotlib  # noqa: F401  (told before anything is computed for it)

        if not Path(args.confusion).absolute().parent.is_dir():
            raise ValueError(f"--confusion {args.confusion}: there is no such folder")

    from vit_rpe.training.checkpoint.checkpoint import load_checkpoint
    from vit_rpe.training.task import task_of

    loaded = load_checkpoint(args.checkpoint, img_size=image_size(args.img_size))
    result, split, word, _ = _evaluate(args, loaded)
    per_class = dict(zip(loaded.class_names, result.per_class, strict=True))
    if args.confusion:
        from vit_rpe.training.reporting.pictures import plot_confusion

        plot_confusion(result, loaded.class_names).savefig(args.confusion, dpi=150)
    task, treatment = task_of(loaded.treatment), loaded.treatment
    size = treatment.size
    more = task.more(result)
    show_classes = len(per_class) <= 100 and not more
    if args.json:
        confusion = result.confusion.tolist() if show_classes and result.confusion is not None else None
        print(
            json.dumps(
                {
                    "checkpoint": str(loaded.folder),
                    treatment.size_name: list(size) if len(size) > 1 else size[0],
                    "count": result.count,
                    "top1": result.top1,
                    "top5": result.top5,
                    "calibration_error": result.calibration_error,
                    "loss": result.loss,
                    **more,
                    "per_class": {name: value if value == value else None for name, value in per_class.items()},
                    "confusion": confusion,
                }
            )
        )
        return
    print(f"checkpoint    {loaded.folder} ({loaded.info.model_name}, epoch {loaded.info.epoch})")
    print(f"split         {split}")
    print(f"{task.unit:<13} {result.count} at {'x'.join(map(str, size))}")
    if show_classes:
        longest = max(map(len, per_class))
        for name, accuracy in per_class.items():
            print(f"  {name:<{longest}}  {accuracy:7.2%}")
    print(f"loss          {result.loss:.4f}")
    print(f"calibration error (15 bins)  {result.calibration_error:.4f}")
    print(f"top-{min(5, len(per_class))} accuracy: {100 * result.top5:.1f} %")
    print(task.words(task.score(result), word))


def _evaluate(args: argparse.Namespace, loaded: LoadedCheckpoint) -> Measured:
    from vit_rpe.evaluation.trained_data import evaluate_trained

    given = {"name": args.data_name, "path": args.data_path}
    given |= {"eval_batch_size": args.batch_size, "num_workers": args.workers}
    measured = evaluate_trained(loaded, split=args.split, device=choose_device(args.device), **given)
    if measured.skipped:
        print(measured.skipped, file=sys.stderr)
    return measured
