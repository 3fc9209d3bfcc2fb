"""The list of timm's pretrained files with a relative or rotary position is made by a rule."""

from __future__ import annotations

import pytest
import timm

from vit_rpe.commands._coverage_table import outcome_of
from vit_rpe.models.exchange.coverage import architectures, has_relative_position, may_have_position, on_meta

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
        ("vit_small_patch16_rope_mixed_224", "from_timm"),
        ("beit_base_patch16_224", "from_timm"),
    ],
)
def test_what_is_exact_says_by_what(name: str, route: str) -> None:
    found = outcome_of(name)
    assert (found.state, found.route) == ("exact", route)
    assert found.differences is not None
    assert found.differences[0] < 1e-5


def test_what_is_not_taken_in_says_why() -> None:
    found = outcome_of("efficientvit_m0")
    assert found.state == "refused"
    assert "timm.models.efficientvit_msra" in found.reason
