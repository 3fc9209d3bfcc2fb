"""Run the tutorials and keep what they showed: ``python docs/make/notebooks.py [NAME ...]``.

Scripts (``docs/tutorials/*.py``, cells by ``# %%``) are what people edit; the notebooks beside them are made from them.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jupytext
import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parents[1] / "tutorials"


def names() -> list[str]:
    """Of the tutorials, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.py"))


def notebook(name: str) -> Any:
    """The notebook of a script, not run; always the same, so that it can be compared."""
    found = jupytext.read(FOLDER / f"{name}.py", fmt="py:percent")
    found.metadata = nbformat.from_dict(
        {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    )
    for number, cell in enumerate(found.cells):
        cell.id = f"{name}-{number}"
        cell.metadata = nbformat.from_dict({})
    return found


def run(name: str) -> Path:
    """Execute one and write it with its outputs, less what says where it ran."""
    found = notebook(name)
    with TemporaryDirectory() as place:
        kernel = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=f"{place}/kernel")
        NotebookClient(found, km=kernel, timeout=300, resources={"metadata": {"path": place}}).execute()
    clean(found)
    path = FOLDER / f"{name}.ipynb"
    nbformat.write(found, path)
    return path


def clean(found: Any) -> None:
    """Take out what is of one machine and one moment: warnings, folders, times, echoes; printed lines are one text."""
    for cell in found.cells:
        cell.metadata = nbformat.from_dict({})
        kept: list[Any] = []
        for output in cell.get("outputs", []):
            text = _printed(output)
            if text is None and not _says_nothing(output):
                kept.append(output)
            elif text is not None and kept and kept[-1].output_type == "stream":
                kept[-1].text += text
            elif text is not None:
                kept.append(nbformat.v4.new_output("stream", name="stdout", text=text))
        if "outputs" in cell:
            cell.outputs = kept


def _printed(output: Any) -> str | None:
    """What a line of a program says, also one that rich shows as a display of its own."""
    text = output.get("text") if output.get("name") == "stdout" else None
    if output.output_type == "display_data" and "image/png" not in output.data:
        text = output.data.get("text/plain")
    return None if text is None else re.sub(r"(/\w+)*/tmp\w{8}\b", "FOLDER", text)


def _says_nothing(output: Any) -> bool:
    echo = output.get("data", {}).get("text/plain", "")
    return output.get("name") == "stderr" or echo.startswith("<torch._C.Generator")


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(FOLDER.parents[1]))
    for each in sys.argv[1:] or names():
        print(run(each))
