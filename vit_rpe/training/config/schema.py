"""The config of a run: what a YAML file holds and what command-line options override.

Each class is one section of the file; each field is one option (``train.epochs`` is ``--train.epochs``) and its
line below is the option's help. Nothing here is heavy: the classes are plain data.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from vit_rpe.data import ImageData, TextData

__all__ = ["DistillConfig", "ModelConfig", "RunConfig", "TrainConfig"]


@dataclass
class ModelConfig:
    """The model.

    Attributes:
        name: A model that timm knows, for example vit_rpe_nano_patch2_8.
        rpe: Position encoding: a name, {name: bias, max_distance: 7}, or a list of those; null keeps the model's.
        img_size: Image side in pixels, or [height, width]; null keeps the model's own.
        args: Further arguments of timm.create_model, for example {drop_path_rate: 0.1}.
        checkpoint: Start from the weights of this run folder or file (fine-tuning, also at another img_size).
        pretrained: Start from timm's published weights, if timm has some for this name.
    """

    name: str = "vit_rpe_nano_patch2_8"
    rpe: dict[str, Any] | list[Any] | str | None = None
    img_size: int | tuple[int, int] | None = None
    args: dict[str, Any] = field(default_factory=dict)
    checkpoint: str | None = None
    pretrained: bool = False


@dataclass
class DistillConfig:
    """Learning from a teacher besides the labels.

    Attributes:
        teacher: A timm model name, or the run folder of a trained model; null turns distillation off.
        pretrained: Load timm's published weights into a teacher given by name.
        checkpoint: A file of weights for a teacher given by name.
        weight: Share of the teacher's loss in the whole, 0 to 1.
        temperature: Softens both distributions (soft distillation).
        hard: Learn the teacher's decision instead of its distribution.
    """

    teacher: str | None = None
    pretrained: bool = False
    checkpoint: str | None = None
    weight: float = 0.5
    temperature: float = 1.0
    hard: bool = False


@dataclass
class TrainConfig:
    """How the model is trained.

    Attributes:
        epochs: Passes over the training images.
        seed: Seed of weights, order, augmentation and dropout (the split has its own).
        optimizer: A name from timm's optimiser factory (adamw, lamb, muon, sgd, ...).
        lr: Learning rate at the top of the schedule, for the effective batch as it is.
        weight_decay: Decay of weight matrices, those of networks inside encodings included; biases, norms, tokens
            and the tables, vectors and frequencies of positions are never decayed.
        layer_decay: Learning-rate factor from each layer to the one below it; null for equal rates.
        position_lr: Learning-rate factor of everything that position encodings learn, on top of layer_decay.
        momentum: Momentum of optimisers that have one.
        betas: The two betas of Adam-like optimisers; null keeps the optimiser's own.
        schedule: A name from timm's scheduler factory (cosine, constant, step, ...).
        warmup_epochs: Epochs of linear warm-up, counted inside epochs.
        warmup_lr: Learning rate at the first update of the warm-up.
        min_lr: Learning rate at the end of the schedule.
        clip_grad: Largest norm of the gradient; null for no clipping.
        accumulate: Batches per update and process.
        ema_decay: Decay of the averaged weights, which are then the ones evaluated and saved; null for none.
        ema_warmup: Let the decay grow from 0 during the first updates.
        loss: Cross_entropy (softmax) or bce (one sigmoid per class).
        label_smoothing: Share of the target that is spread over all classes.
        distill: Learning from a teacher.
        precision: No (float32), bf16 or fp16 (mixed).
        device: Auto (an accelerator if there is one) or cpu.
        compile: Compile the model with torch.compile.
        grad_checkpointing: Recompute activations in the backward pass to save memory.
        checkpoint_every_steps: Also write last/ every so many updates inside an epoch; null for epochs only.
        keep: How many epoch checkpoints to keep, last/ included.
        log_every: Updates between two refreshes of the numbers shown; a loss that is not finite is noticed then.
        pictures_every: Epochs between two sets of pictures (attention, learned bias) in pictures/epoch-0010/ of the run
            folder and in the trackers; null for none but those at the end.
    """

    epochs: int = 60
    seed: int = 0
    optimizer: str = "adamw"
    lr: float = 1e-3
    weight_decay: float = 0.05
    layer_decay: float | None = None
    position_lr: float = 1.0
    momentum: float = 0.9
    betas: tuple[float, float] | None = None
    schedule: str = "cosine"
    warmup_epochs: float = 5
    warmup_lr: float = 1e-6
    min_lr: float = 1e-5
    clip_grad: float | None = None
    accumulate: int = 1
    ema_decay: float | None = None
    ema_warmup: bool = True
    loss: Literal["cross_entropy", "bce"] = "cross_entropy"
    label_smoothing: float = 0.1
    distill: DistillConfig = field(default_factory=DistillConfig)
    precision: Literal["no", "bf16", "fp16"] = "no"
    device: Literal["auto", "cpu"] = "auto"
    compile: bool = False
    grad_checkpointing: bool = False
    checkpoint_every_steps: int | None = None
    keep: int = 1
    log_every: int = 10
    pictures_every: int | None = None


@dataclass
class RunConfig:
    """One training run.

    Attributes:
        model: The model.
        data: The images.
        train: How it is trained.
        output: The run folder; null makes one under runs/, named after the config and the time.
        resume: Auto (go on from the run folder's last/ if there is one) or a run folder or checkpoint.
        overwrite: Let a new run replace the one that the run folder holds.
        pictures: Draw curves, attention, learned biases and confusion at the end.
        trackers: Experiment trackers by name: tensorboard, wandb, trackio.
        plugin: Files or modules to import first, with encodings of one's own; --plugin FILE may be given several times.
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    data: ImageData | TextData = field(default_factory=ImageData)
    train: TrainConfig = field(default_factory=TrainConfig)
    output: str | None = None
    resume: str | None = None
    overwrite: bool = False
    pictures: bool = True
    trackers: list[str] = field(default_factory=list)
    plugin: list[str] = field(default_factory=list)
