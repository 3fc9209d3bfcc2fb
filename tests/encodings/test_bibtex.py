"""Every encoding can be cited, and every paper that comes with the package is one that a card names."""

from __future__ import annotations

import re

import pytest

from vit_rpe.cli import main
from vit_rpe.encodings import Card, PositionEncoding, _registry, bibtex, encoding_class, list_encodings, register
from vit_rpe.encodings._bibtex import NUMBER, published

BUILT_IN = [name for name in list_encodings() if name != "none" and not name.startswith("toy")]


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_entries_are_those_of_the_card(name: str) -> None:
    entries = re.split(r"\n\n(?=@)", bibtex(name))
    numbers = NUMBER.findall(encoding_class(name).card.paper)
    assert [re.findall(r"eprint = \{(.*)\}", entry) for entry in entries] == [[number] for number in numbers]
    for entry in entries:
        assert re.match(r"@misc\{[a-z]+\d{4}[a-z0-9]+,\n", entry)
        assert {"title", "author", "year", "eprint", "archivePrefix"} == set(re.findall(r"^  (\w+) =", entry, re.M))
        assert entry.count("{") == entry.count("}")


def test_every_entry_is_named_by_a_card_and_has_a_key_of_its_own() -> None:
    named = {number for name in BUILT_IN for number in NUMBER.findall(encoding_class(name).card.paper)}
    assert published().keys() == named
    keys = [re.findall(r"@misc\{(.*),", entry)[0] for entry in published().values()]
    assert len(set(keys)) == len(keys)


def test_an_encoding_of_ones_own_is_cited_by_its_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_registry, "_REGISTRY", dict(_registry._REGISTRY))
    card = Card(paper="T5, arXiv 1910.10683; My slopes, arXiv 2999.00001", adds=(), extrapolation="none")
    register("my_own", card)(type("MyOwn", (PositionEncoding,), {}))
    assert "Raffel" in bibtex("my_own")
    assert "title = {My slopes},\n  eprint = {2999.00001}" in bibtex("my_own")


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["encodings", "--bibtex", "rope_mixed"]) == 0
    assert capsys.readouterr().out.startswith("@misc{heo2024rotary,")
    assert main(["encodings", "--bibtex", "rope_mixd"]) == 1
    assert "did you mean 'rope_mixed'" in capsys.readouterr().err
    assert main(["encodings", "--bibtex", "none"]) == 1
    assert "'none' names no arXiv number" in capsys.readouterr().err
