"""The list of timm's pretrained files with a relative or rotary position is made by a rule."""

from __future__ import annotations

import pytest
import timm
import torch
from torch import nn

import vit_rpe
from vit_rpe.cli import main
from vit_rpe.commands._coverage_table import FAMILIES as TABLE
from vit_rpe.commands._coverage_table import Outcome, outcome_of, print_families
from vit_rpe.models.exchange.coverage import (
    architectures,
    differences_of,
    has_relative_position,
    in_float64,
    may_have_position,
    on_meta,
)
from vit_rpe.models.exchange.in_place import positioned_layers
from vit_rpe.models.families import Family, family_of, is_described
from vit_rpe.models.families._registry import FAMILIES

WITH = (
    *("beitv2_base_patch16_224", "deepseek_vit_412m", "efficientformer_l1", "efficientformerv2_s0", "efficientvit_m0"),
    *("eva02_tiny_patch14_224", "vit_small_patch16_rope_mixed_224", "vit_tiny_patch16_dinov3_qkvb", "gcvit_xxtiny"),
    *("gemma4_vit_167m", "levit_128s", "maxvit_rmlp_pico_rw_256", "coatnet_nano_rw_224", "maxvit_tiny_tf_224"),
    *("mvitv2_tiny", "qwen3_vit_88m", "samvit_base_patch16", "swin_tiny_patch4_window7_224", "tiny_vit_5m_224"),
    *("swinv2_tiny_window8_256", "swinv2_cr_tiny_ns_224", "vit_relpos_small_patch16_224"),
)
WITHOUT = (
    *("vit_tiny_patch16_224", "eva_large_patch14_196", "coat_tiny", "davit_tiny", "xcit_nano_12_p16_224"),
    *("convit_tiny", "twins_svt_small", "hiera_tiny_224", "resnet18", "naflexvit_base_patch16_gap"),
)


@pytest.mark.parametrize("name", WITH)
def test_position_is_found(name: str) -> None:
    assert may_have_position(name)
    assert has_relative_position(on_meta(name))


@pytest.mark.parametrize("name", WITHOUT)
def test_no_position_is_found_where_there_is_none(name: str) -> None:
    assert not has_relative_position(on_meta(name))


@pytest.mark.exhaustive
def test_how_many_files() -> None:
    """281 files of 199 architectures with timm 1.0.31; a newer timm has more."""
    found = architectures()
    files = sum(map(len, found.values()))
    if timm.__version__ == "1.0.31":
        assert (len(found), files) == (199, 281)
    else:
        assert files >= 281
    assert set(WITH) <= set(found)
    assert not set(WITHOUT) & set(found)


@pytest.mark.parametrize(
    ("name", "route"),
    [
        ("swin_large_patch4_window12_384", "replace_attention"),
        ("samvit_huge_patch16", "replace_attention"),
        ("vit_5b_patch16_sapiens2", "replace_attention"),
        ("vit_pe_core_small_patch16_384", "replace_attention"),
        ("efficientvit_m3", "replace_attention"),
        ("efficientformer_l1", "replace_attention"),
        ("efficientformerv2_s0", "replace_attention"),
        ("vit_small_patch16_rope_mixed_224", "from_timm"),
        ("beit_base_patch16_224", "from_timm"),
        ("mvitv2_large_cls", "replace_attention"),
        ("gcvit_xxtiny", "replace_attention"),
    ],
)
def test_what_is_exact_says_by_what(name: str, route: str) -> None:
    found = outcome_of(name)
    assert (found.state, found.route) == ("exact", route)
    assert found.differences is not None
    assert found.differences.float32 < 1e-5
    assert found.differences.float64 < 1e-12
    assert found.differences.without > 1e-3


def test_what_is_not_taken_in_says_why() -> None:
    found = outcome_of("davit_tiny")
    assert found.state == "refused"
    assert "timm.models.davit.ChannelAttention has no map over tokens" in found.reason


@pytest.mark.parametrize(("other", "status"), [("exact", 0), ("looked at only", 1), ("refused", 1)])
def test_the_status_says_whether_all_are_exact(
    other: str, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    states = {"swin_tiny_patch4_window7_224": "exact", "samvit_base_patch16": other}
    monkeypatch.setattr("vit_rpe.commands._coverage_table.outcome_of", lambda name: Outcome(states[name]))
    monkeypatch.setattr("vit_rpe.models.exchange.coverage.architectures", lambda: dict.fromkeys(states, ("tag",)))
    assert main(["parity", "--coverage"]) == status
    assert capsys.readouterr().out.splitlines()[-1].startswith("2 files: ")


def test_another_position_is_not_exact() -> None:
    """What is compared feels position: with a wrong sign of one axis the features differ."""

    def flipped(model: nn.Module, rpe: str = "keep") -> nn.Module:
        ours = vit_rpe.replace_attention(model, rpe)
        for layer in positioned_layers(ours).values():
            if rpe == "keep":
                layer.rpe.table.data = layer.rpe.table.flip(1)
        return ours

    found = differences_of("swin_tiny_patch4_window7_224", flipped)
    assert found.float32 > 1e-3
    assert found.float64 > 1e-3


def test_in_float64_nothing_is_rounded_to_float32() -> None:
    with in_float64():
        third = (torch.arange(1, 4, dtype=torch.float32) / 3).float().to(torch.float32)
        third = third + torch.ones(3, device="cpu", dtype=torch.float32).type(torch.float32) * 0
    assert third.dtype == torch.float64
    assert float(third[0]) == 1 / 3
    assert torch.get_default_dtype() == torch.float32
    assert torch.ones(1, dtype=torch.float32).float().dtype == torch.float32


def test_every_family_has_a_row(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those whose attention takes another position in timm."""
    models = [on_meta(name) for names in TABLE.values() for name in names]
    shown = {type(family_of(layer)) for model in models for layer in model.modules() if is_described(layer)}
    takes = {type(family) for family in FAMILIES if family.takes_position and "timm" in str(family.layers)}
    assert {kind.__name__ for kind in takes - shown if kind.own is not Family.own} == {"RelativeViT"}, "by from_timm"
    monkeypatch.setattr("vit_rpe.commands._coverage_table.FAMILIES", {"Swin": TABLE["Swin"]})
    print_families()
    title, line, row = capsys.readouterr().out.strip().splitlines()
    assert title.count("|") == line.count("|") == row.count("|")
    assert row.startswith("| Swin | `swin_tiny_patch4_window7_224` | ")
