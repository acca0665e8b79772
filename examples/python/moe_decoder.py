#!/usr/bin/env python3
"""A small language model with experts: trained in torch, then decoded with finegemm.moe, a token of a text at a time.

It reads two tokens and names the next one; what is between its embeddings and its head are layers of experts. Beside it
the same model decodes in bfloat16, and how often both name the same token is printed.
Needs: pip install . in this repository, torch 2.11 or later; says so and ends where there is no torch
"""

import importlib.util
import sys

if __name__ == "__main__" and importlib.util.find_spec("torch") is None:
    print("moe_decoder.py: skipped, torch is not installed")
    sys.exit(0)

import torch
from torch import nn
from torch.nn import functional

import finegemm

VOCABULARY, DIM, LAYERS, EXPERTS, TOP_K, INTERMEDIATE = 16, 128, 2, 8, 2, 128
STEPS, BATCH, TEXTS, LENGTH = 60, 128, 32, 40
# Share of tokens that must be the same. e4m3 moves logits by some hundredths of what they differ by; where the two best
# are that close, the models may name either.
AGREEMENT = 0.95


class Experts(nn.Module):
    """Each token goes to TOP_K experts. Weights of gates lie above those of ups."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(DIM, EXPERTS, bias=False)
        self.gate_up = nn.Parameter(torch.randn(EXPERTS, 2 * INTERMEDIATE, DIM) / DIM**0.5)
        self.down = nn.Parameter(torch.randn(EXPERTS, DIM, INTERMEDIATE) / INTERMEDIATE**0.5)
        self.parts: list[torch.Tensor] = []  # codes and scales of both

    @torch.no_grad()
    def quantise(self) -> None:
        """Once, for all that is decoded."""
        self.parts = [part for w in (self.gate_up, self.down) for part in finegemm.quantize_weights(w)[:2]]

    def forward(self, x):
        logits = functional.linear(x.float(), self.router.weight.float())
        odds, ids = logits.softmax(-1).topk(TOP_K)
        odds = odds / odds.sum(-1, keepdim=True)
        if self.parts:
            return finegemm.moe(x, ids, *self.parts, odds)
        gates, ups = torch.einsum("th,enh->ten", x, self.gate_up).chunk(2, -1)
        each = torch.einsum("tei,ehi->teh", functional.silu(gates) * ups, self.down)
        weights = torch.zeros(len(x), EXPERTS, device=x.device).scatter(1, ids, odds)
        return (each.float() * weights[..., None]).sum(1).to(x.dtype)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.last, self.before = (nn.Embedding(VOCABULARY, DIM) for _ in range(2))
        self.experts = nn.ModuleList(Experts() for _ in range(LAYERS))
        self.norms = nn.ModuleList(nn.RMSNorm(DIM) for _ in range(LAYERS + 1))
        self.head = nn.Linear(DIM, VOCABULARY, bias=False)

    def forward(self, before, last):
        x = self.before(before) + self.last(last)
        for norm, experts in zip(self.norms, self.experts, strict=False):
            x = x + experts(norm(x))
        return self.head(self.norms[-1](x))


def ruled(before: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
    """The token that follows, which no sum of something of each of the two gives."""
    return (before * last + last + 1) % VOCABULARY


def trained(device: str) -> Decoder:
    torch.manual_seed(0)
    model = Decoder().to(device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(STEPS):
        before, last = (torch.randint(VOCABULARY, (BATCH,), device=device) for _ in range(2))
        loss = functional.cross_entropy(model(before, last), ruled(before, last))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model


@torch.no_grad()
def decoded(model: Decoder, begin: torch.Tensor, given: torch.Tensor | None = None) -> torch.Tensor:
    """[TEXTS, 2 + LENGTH]: each text goes on with the token that the model finds the most likely after its own ones, or
    after those of `given`."""
    text = begin
    for place in range(LENGTH):
        read = text if given is None else given[:, : 2 + place]
        text = torch.cat((text, model(read[:, -2], read[:, -1]).argmax(-1, keepdim=True)), 1)
    return text


def main() -> int:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = trained(device).bfloat16()
    begin = torch.randint(VOCABULARY, (TEXTS, 2), generator=torch.Generator().manual_seed(1)).to(device)
    reference = decoded(model, begin)
    for experts in model.experts:
        experts.quantise()

    def share(same: torch.Tensor) -> float:
        return same.float().mean().item()

    follow = share(reference[:, 2:] == ruled(reference[:, :-2], reference[:, 1:-1]))
    same = share((decoded(model, begin, given=reference) == reference)[:, 2:])
    alone = share((decoded(model, begin) == reference)[:, 2:])
    print(f"{TEXTS} texts of {LENGTH} tokens on {device}: {follow:.1%} of bfloat16's tokens are those of the rule")
    print(f"finegemm.moe names {same:.1%} of bfloat16's tokens after the same text, {alone:.1%} after its own")
    return 0 if same >= AGREEMENT else 1


if __name__ == "__main__":
    sys.exit(main())
