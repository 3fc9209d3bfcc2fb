"""The papers behind an encoding, as BibTeX entries to cite."""

from __future__ import annotations

import re
from importlib.resources import files

from vit_rpe.encodings._registry import encoding_class

NUMBER = re.compile(r"arXiv (\d{4}\.\d{5})")


def bibtex(name: str) -> str:
    """The entries of the papers that an encoding's card names, in its order.

    An encoding of somebody else's is cited by what its card says: the words before the arXiv number are the title.

    Raises:
        ValueError: there is no such encoding, or its card names no arXiv number.
    """
    paper = encoding_class(name).card.paper
    numbers = NUMBER.findall(paper)
    if not numbers:
        raise ValueError(f"{name!r} names no arXiv number: its paper is {paper!r}")
    ours = published()
    return "\n\n".join(ours.get(number) or _from_card(paper, number) for number in numbers)


def published() -> dict[str, str]:
    """The entries that come with the package, by arXiv number."""
    text = files("vit_rpe.encodings").joinpath("papers.bib").read_text(encoding="utf-8")
    entries = re.findall(r"^@.*?^\}", text, re.MULTILINE | re.DOTALL)
    return {re.findall(r"eprint = \{(.*)\}", entry)[0]: entry for entry in entries}


def _from_card(paper: str, number: str) -> str:
    title = paper.split(f"arXiv {number}")[0].rpartition(";")[2].strip(" ,")
    fields = {"title": title, "eprint": number, "archivePrefix": "arXiv"}
    lines = [f"  {field} = {{{value}}}," for field, value in fields.items() if value]
    return "\n".join([f"@misc{{arxiv{number.replace('.', '')},", *lines, "}"])
