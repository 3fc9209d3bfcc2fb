"""The page that goes with a trained model: what it is, what it was trained on and how, how well it does."""

from __future__ import annotations

import json
import math
import re
import shlex
from pathlib import Path
from typing import Any

from vit_rpe.evaluation.trained_data import Measured
from vit_rpe.training.checkpoint.checkpoint import LoadedCheckpoint
from vit_rpe.training.checkpoint.resume import PLACES
from vit_rpe.training.checkpoint.run_folder import find_run
from vit_rpe.training.checkpoint.runs import encoding_words
from vit_rpe.training.config.yaml_text import read_yaml
from vit_rpe.training.task import task_of

__all__ = ["model_card", "results_of", "wilson_interval"]

PICTURE = "attention.png"
_PLACES = tuple(f"--{option}" for option in (*PLACES, "data.val_path", "data.download"))
_RECIPE = {
    "train": ("epochs", "optimizer", "lr", "weight_decay", "schedule", "warmup_epochs", "loss", "label_smoothing"),
    "data": ("batch_size", "augment", "mixup", "cutmix"),
}


def wilson_interval(share: float, count: int) -> tuple[float, float]:
    """The 95 % interval of a share of ``count`` independent trials (Wilson 1927), which stays within 0 and 1."""
    z = 1.959964
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return max(0.0, middle - half), min(1.0, middle + half)


def results_of(loaded: LoadedCheckpoint, measured: Measured) -> dict[str, Any]:
    """What was measured, as the model's ``config.json`` keeps it."""
    result = measured.result
    more = task_of(loaded.treatment).more(result)
    found: dict[str, Any] = {"split": measured.split, "count": result.count, "loss": result.loss, **more}
    if not more:  # labels of one text are not independent of each other
        low, high = wilson_interval(result.top1, result.count)
        found |= {"top1": result.top1, "top1_low": low, "top1_high": high}
    return found


def model_card(
    name: str,
    source: Path,
    loaded: LoadedCheckpoint,
    results: dict[str, Any],
    *,
    licence: str,
    note: str,
    picture: bool,
) -> str:
    """The card as Markdown, with the head that model hubs read.

    Args:
        name: of the folder, and of the model if it comes with the package.
        source: the checkpoint the model was made from; its run, if it lies in one, tells the recipe.
        loaded: the model that was measured.
        results: as :func:`results_of` gives them.
        licence: of the weights.
        note: more on the data, such as where they come from; may be empty.
        picture: whether ``attention.png`` lies beside the card.
    """
    info, task = loaded.info, task_of(loaded.treatment)
    rpe = info.model_args.get("rpe")
    parameters = sum(parameter.numel() for parameter in loaded.model.parameters())
    size = " x ".join(map(str, loaded.treatment.size))
    data = info.data.get("name", "unknown data")
    plain = re.fullmatch(r"[A-Za-z][\w.-]*", licence)  # else quoted: a colon would end the head
    lines = [
        "---",
        f"license: {licence if plain else json.dumps(licence, ensure_ascii=False)}",
        "library_name: timm",
        "tags: [vit_rpe, relative-position]",
        "---",
    ]
    lines += ["", f"# {name}", ""]
    lines += [f"`{info.model_name}`, position: `{encoding_words(rpe) if rpe is not None else 'the default'}`;"]
    lines += [f"{parameters:,} parameters in half precision; {task.unit} of {size}, {len(info.class_names)} classes."]
    lines += ["", "## Result", "", _result_words(results, task.unit), _choice_words(source, loaded)]
    lines += ["", "## Data", "", f"`{data}`, prepared as `config.json` says." + (f" {note}" if note else "")]
    lines += ["", "## Recipe", "", *_recipe(source)]
    lines += ["", "## Use", "", "```", f"vit-rpe evaluate --checkpoint {name}"]
    lines += [f"vit-rpe explore --checkpoint {name}", "```"] if picture else ["```"]
    if picture:
        lines += ["", f"![Where the last layer looks, one row an image, one column a head]({PICTURE})"]
    return "\n".join([*lines, "", "## Licence", "", f"Weights: {licence}.", ""])


def _result_words(results: dict[str, Any], unit: str) -> str:
    over = f"Measured with these very files on {results['count']:,} {unit}: {results['split']}."
    if "top1" not in results:
        return f"**{results['bits_per_character']:.3f} bits per character.** {over}"
    low, high = (100 * results[key] for key in ("top1_low", "top1_high"))
    return f"Accuracy **{100 * results['top1']:.1f} %**, 95 % interval {low:.1f} to {high:.1f} %. {over}"


def _choice_words(source: Path, loaded: LoadedCheckpoint) -> str:
    run, epoch = find_run(source), loaded.info.epoch
    planned = None if run is None else read_yaml(run / "config.yaml")["train"]["epochs"]
    if epoch == planned:
        return f"The weights of the last epoch, {epoch}: nothing was chosen by looking at these results."
    of = "" if planned is None else f" of {planned}"
    return f"Epoch {epoch}{of} was the best on this very split, so the result is a little too good."


def _recipe(source: Path) -> list[str]:
    """The command of the run and the options that matter; what the run's folder does not tell is left out."""
    run = find_run(source)
    if run is None:
        return ["Not known: the checkpoint lay in no run folder."]
    config = read_yaml(run / "config.yaml")
    values = {key: config[section].get(key) for section, keys in _RECIPE.items() for key in keys}
    values["seed"] = config["train"]["seed"]
    lines = [", ".join(f"{key} {value}" for key, value in values.items() if value is not None) + "."]
    versions = run / "versions.json"
    if not versions.is_file():
        return lines
    told = json.loads(versions.read_text(encoding="utf-8"))
    packages = ", ".join(f"{name} {told['packages'][name]}" for name in ("vit_rpe", "torch", "timm"))
    return ["```", _command(told["command"]), "```", "", *lines, f"Python {told['python']}, {packages}."]


def _command(words: list[str]) -> str:
    """The command line of the run without where it read from and wrote to, which is the owner's own."""
    kept: list[str] = []
    rest = iter(words[words.index("train") + 1 if "train" in words else 1 :])
    for word in rest:
        if word in _PLACES:
            next(rest, None)
        elif not word.startswith(tuple(f"{place}=" for place in _PLACES)):
            kept.append(shlex.quote(word))
    return " ".join(["vit-rpe train", *kept])
