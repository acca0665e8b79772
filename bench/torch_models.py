"""Small language models for training: a transformer and one with experts, in BF16 or with FP8 layers; their data."""

import torch
from torch import nn

import finegemm.torch

VOCABULARY, CONTEXT = 32, 128  # tokens
SHARPNESS = 3.0


class PlainExperts(finegemm.torch.GroupedLinear):
    """GroupedLinear as torch multiplies it, in autocast's type."""

    def forward(self, x, offsets, *, all_rows=False):
        dtype = torch.get_autocast_dtype(x.device.type) if torch.is_autocast_enabled(x.device.type) else x.dtype
        x, weight = x.to(dtype), self.weight.to(dtype)
        if x.is_cuda and dtype == torch.bfloat16:
            return torch._grouped_mm(x, weight.mT, offs=offsets[1:].to(torch.int32))
        parts = x.split(offsets.diff().tolist())
        return torch.cat([part @ w.t() for part, w in zip(parts, weight, strict=True)])


class FeedForward(nn.Module):
    def __init__(self, dim: int, hidden: int):
        super().__init__()
        self.gate_up, self.down = nn.Linear(dim, 2 * hidden, bias=False), nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.down(nn.functional.silu(gate) * up)


class MixtureOfExperts(nn.Module):
    """Each token goes to `top_k` experts; the router stays in FP32."""

    def __init__(self, dim: int, hidden: int, experts: int, top_k: int, grouped: type):
        super().__init__()
        self.top_k = top_k
        self.router = nn.Linear(dim, experts, bias=False)
        self.gate_up, self.down = grouped(experts, dim, 2 * hidden), grouped(experts, hidden, dim)

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        with torch.autocast(x.device.type, enabled=False):
            odds, chosen = self.router(rows.float()).softmax(-1).topk(self.top_k)
            odds = odds / odds.sum(-1, keepdim=True)
        expert, order = chosen.reshape(-1).sort(stable=True)
        experts = torch.arange(self.router.out_features + 1, device=x.device)
        offsets = torch.searchsorted(expert, experts)
        gate, up = self.gate_up(rows[order // self.top_k], offsets, all_rows=True).chunk(2, -1)
        out = self.down(nn.functional.silu(gate) * up, offsets, all_rows=True)
        weighted = out.float() * odds.reshape(-1)[order, None]
        return torch.zeros_like(rows, dtype=torch.float32).index_add(0, order // self.top_k, weighted).view(x.shape)


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        batch, length, dim = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, dim))


class Block(nn.Module):
    def __init__(self, dim: int, heads: int, mixes: nn.Module):
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(dim) for _ in range(2))
        self.attention, self.mixes = Attention(dim, heads), mixes

    def forward(self, x):
        x = x + self.attention(self.norms[0](x))
        return x + self.mixes(self.norms[1](x))


class Model(nn.Module):
    """Tokens [batch, length] to logits [batch, length, VOCABULARY]."""

    def __init__(self, dim=256, layers=2, heads=4, hidden=512, experts=0, top_k=2, grouped=PlainExperts):
        super().__init__()

        def mixes():
            if experts:
                return MixtureOfExperts(dim, hidden, experts, top_k, grouped)
            return FeedForward(dim, hidden)

        self.embedding, self.position = nn.Embedding(VOCABULARY, dim), nn.Embedding(CONTEXT, dim)
        self.blocks = nn.ModuleList(Block(dim, heads, mixes()) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(dim), nn.Linear(dim, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def in_fp8(model: nn.Module) -> nn.Module:
    """Head and router stay as they are, as in published recipes."""
    return finegemm.torch.convert_to_training(model, lambda name, _: not name.endswith(("head", "router")))


class Text:
    """Endless tokens of a Markov chain of second order, from one seed.

    A token says little of the next one, the two before it say much: only what mixes positions and pairs can learn it.
    """

    def __init__(self, seed: int = 0):
        self.random = torch.Generator().manual_seed(seed)
        uniform = torch.rand(VOCABULARY, VOCABULARY, VOCABULARY, generator=self.random)
        self.odds = (-SHARPNESS * torch.log(-torch.log(uniform))).softmax(-1)  # of Gumbel's noise: few are likely

    def entropy(self) -> float:
        """Nats per token that no model can do without, pairs being about equally frequent."""
        return float(-(self.odds * self.odds.log()).sum(-1).mean())

    def batch(self, size: int) -> torch.Tensor:
        """[size, CONTEXT + 1] tokens."""
        tokens = torch.randint(VOCABULARY, (size, 2), generator=self.random)
        for _ in range(CONTEXT - 1):
            odds = self.odds[tokens[:, -2], tokens[:, -1]]
            tokens = torch.cat([tokens, torch.multinomial(odds, 1, generator=self.random)], 1)
        return tokens


def train(model: nn.Module, steps: int, batch: int, device: str, rate: float = 3e-3) -> list[float]:
    """Losses of the steps, in nats per token: the same data for every model. BF16 where autocast says so."""
    text, losses = Text(), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.95), weight_decay=0.1)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, (step + 1) / 20)
        tokens = text.batch(batch).to(device)
        with torch.autocast(device, dtype=torch.bfloat16):
            logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses
