"""Downloads that are either whole or absent."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from vit_rpe.data.errors import DataNotFoundError

__all__ = ["fetch"]


def fetch(target: Path, download: Callable[[Path], Path], *, what: str, by_hand: str) -> None:
    """Download into a fresh folder beside ``target``, then rename: ``target`` appears complete or not at all.

    Args:
        target: the folder that is missing now.
        download: fills the folder it is given with verified files and returns the one that becomes
            ``target``.
        what: the name of the data, for the message.
        by_hand: what a person can do instead, for the message: which file, from where, to where.

    Raises:
        DataNotFoundError: the download failed; nothing is left behind.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    workplace = Path(tempfile.mkdtemp(prefix=f".{target.name}-partial-", dir=target.parent))
    try:
        complete = download(workplace)
        try:
            os.replace(complete, target)
        except OSError:
            if not target.is_dir():  # else another process was faster, with the same verified files
                raise
    except (OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise DataNotFoundError(f"the download of {what} to {target} failed: {reason}. By hand: {by_hand}") from error
    finally:
        shutil.rmtree(workplace, ignore_errors=True)
