"""The attention problems that are timed, and what they cost."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Shape:
    """One sequence over itself, [heads, tokens, head_dim]."""
    tokens: int
    head_dim: int
    causal: bool
    heads: int = 8
    kv_heads: int = 8

    @property
    def name(self):
        heads = str(self.heads) if self.heads == self.kv_heads else f"{self.heads}:{self.kv_heads}"
        return f"n{self.tokens}-d{self.head_dim}-h{heads}-{'causal' if self.causal else 'full'}"

    @property
    def flops(self):
        """A multiply and an add for each channel of a score and of an output, for visible pairs only, as rove_compare
        counts them: softmax and rotations cost, but are not what is asked for."""
        pairs = self.tokens * (self.tokens + 1) // 2 if self.causal else self.tokens * self.tokens
        return 4 * self.head_dim * self.heads * pairs

    def fields(self):
        """Its part of a record."""
        return {"head_dim": self.head_dim, "q_len": self.tokens, "kv_len": self.tokens, "heads": self.heads,
                "kv_heads": self.kv_heads, "causal": self.causal}


SHAPES = (
    *(Shape(tokens, head_dim, causal)
      for tokens in (512, 1024, 4096) for head_dim in (64, 128) for causal in (False, True)),
    Shape(1024, 64, True, heads=9, kv_heads=3),
    Shape(128, 64, False, heads=32, kv_heads=32),
    Shape(128, 64, True, heads=32, kv_heads=32),
)
