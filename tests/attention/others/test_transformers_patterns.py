"""global_local, bigbird and lsh beside Longformer, BigBird and Reformer of Hugging Face's transformers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from configs import attention_of
from torch import Tensor, nn

pytest.importorskip("transformers")

pytestmark = pytest.mark.usefixtures("double")

B, WIDTH, HEADS = 2, 12, 3


def layer(preset: str, *overrides: str) -> Any:
    """A layer without output projection, as theirs have it elsewhere."""
    options = ["attention.qkv_bias=true", f"attention.num_heads={HEADS}"]
    options += [f"attention.pattern.{option}" for option in overrides]
    attention = attention_of(preset, *options, query_dim=WIDTH, key_dim=WIDTH, value_dim=WIDTH).eval()
    attention.project_output = nn.ModuleList([nn.Identity()])
    return attention


def share_projections(attention: Any, theirs: Any, suffix: str = "") -> None:
    ours = {
        "query": attention.score.project_query,
        "key": attention.score.project_key,
        "value": attention.project_values,
    }
    for name, projection in ours.items():
        getattr(theirs, name + suffix).load_state_dict(projection.state_dict())


@pytest.mark.parametrize("num_global", [0, 1, 3])
def test_global_local_is_longformer_with_one_set_of_projections(num_global: int) -> None:
    from transformers.models.longformer.configuration_longformer import LongformerConfig
    from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

    k, length = 4, 32
    config = LongformerConfig(
        hidden_size=WIDTH, num_attention_heads=HEADS, attention_window=[2 * k], attention_probs_dropout_prob=0.0
    )
    theirs = LongformerSelfAttention(config, 0).double().eval()
    attention = layer("global_local", f"k={k}", f"num_global={num_global}")
    share_projections(attention, theirs)
    share_projections(attention, theirs, "_global")
    x = torch.randn(B, length, WIDTH)
    mask = torch.arange(length) < torch.tensor([[length], [19]])
    is_global = (torch.arange(length) < num_global).expand(B, -1)
    expected = theirs(
        x,
        attention_mask=torch.where(mask, torch.where(is_global, 10000.0, 0.0), -10000.0),
        is_index_masked=~mask,
        is_index_global_attn=is_global,
        is_global_attn=num_global > 0,
    )[0]
    found = attention.attend_self(x, mask).context
    torch.testing.assert_close(found[mask], expected[mask], rtol=0, atol=1e-6)  # their softmax is in float32


def test_bigbird_is_that_of_hugging_face_where_its_last_block_is_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Theirs has the last block among the global ones, and draws otherwise: here both get the draws 1-4, 2-5, 3-6."""
    from transformers.models.big_bird.configuration_big_bird import BigBirdConfig
    from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention, BigBirdModel

    block, drawn = 4, torch.tensor([-1, 4, 5, 6, 1, 2, 3, -1])
    length = block * len(drawn)
    config = BigBirdConfig(
        hidden_size=WIDTH, num_attention_heads=HEADS, block_size=block, num_random_blocks=1, use_bias=True
    )
    theirs = BigBirdBlockSparseAttention(config).double().eval()
    by_head = [drawn[1:-1, None].numpy()] * HEADS
    monkeypatch.setattr(theirs, "_bigbird_block_rand_mask_with_head", lambda **_: by_head)
    attention = layer("bigbird", f"block_length={block}")
    monkeypatch.setattr(attention.pattern, "drawn", lambda blocks, draw: drawn[blocks])
    share_projections(attention, theirs)
    x = torch.randn(B, length, WIDTH)
    mask = torch.arange(length) < torch.tensor([[length - block], [18]])
    blocked, band, rows, columns = BigBirdModel.create_masks_for_block_sparse_attn(mask.double(), block)
    expected = theirs(
        x, band_mask=band, from_mask=rows, to_mask=columns, from_blocked_mask=blocked, to_blocked_mask=blocked
    )[0]
    found = attention.attend_self(x, mask).context
    torch.testing.assert_close(found[mask], expected[mask], rtol=0, atol=1e-12)


def test_buckets_are_those_of_reformer_under_its_rotations() -> None:
    from transformers.models.reformer.configuration_reformer import ReformerConfig
    from transformers.models.reformer.modeling_reformer import LSHSelfAttention

    rounds, buckets, length, seed = 3, 8, 11, 7
    config = ReformerConfig(
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        attention_head_size=WIDTH // HEADS,
        num_buckets=buckets,
        hash_seed=seed,
    )
    vectors = torch.randn(B, HEADS, length, WIDTH // HEADS)
    hashed: Tensor = LSHSelfAttention(config)._hash_vectors(vectors, rounds, None)
    hashed = hashed.unflatten(-1, (rounds, length))
    torch.manual_seed(seed)
    rotations = torch.randn(HEADS, WIDTH // HEADS, rounds, buckets // 2)
    pattern = layer("lsh", f"num_buckets={buckets}", f"num_rounds={rounds}").pattern
    for head in range(HEADS):  # theirs has other rotations for every head
        pattern.rotations = rotations[head].transpose(0, 1)
        one = vectors[:, head : head + 1]
        same = (hashed[:, head, :, :, None] == hashed[:, head, :, None]).any(1)
        assert torch.equal(pattern.select(one, one, None, None)[:, 0], same)
        assert 0 < same.double().mean() < 1
