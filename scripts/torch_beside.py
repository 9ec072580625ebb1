"""PyTorch on the same card as `scripts/gpu.sh`: products, attention, a whole training step.

Medians in milliseconds, as CSV: what, n or preset, dtype or scheme, ms, TFLOP/s (products only).
fp32 is fp32: TF32 is off.
"""

import argparse
import csv
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

# layers, heads, width, block, batch
PRESETS = {
    "tiny": (2, 2, 64, 64, 8),
    "small": (4, 4, 128, 64, 12),
    "seed": (6, 6, 384, 256, 64),
}
VOCAB = 65


def median_ms(work, device, steps):
    """The median time of `work`, after some calls that do not count."""

    def done():
        if device == "cuda":
            torch.cuda.synchronize()

    for _ in range(3):
        work()
    times = []
    for _ in range(steps):
        done()
        start = time.perf_counter()
        work()
        done()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


class Block(nn.Module):
    def __init__(self, heads, width):
        super().__init__()
        self.heads = heads
        self.ln1 = nn.LayerNorm(width, bias=False)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.proj = nn.Linear(width, width, bias=False)
        self.ln2 = nn.LayerNorm(width, bias=False)
        self.fc = nn.Linear(width, 4 * width, bias=False)
        self.out = nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        b, t, c = x.shape
        split = [y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.qkv(self.ln1(x)).split(c, 2)]
        y = F.scaled_dot_product_attention(*split, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.out(F.gelu(self.fc(self.ln2(x))))


class Model(nn.Module):
    def __init__(self, layers, heads, width, block):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, width)
        self.places = nn.Embedding(block, width)
        self.blocks = nn.ModuleList([Block(heads, width) for _ in range(layers)])
        self.norm = nn.LayerNorm(width, bias=False)
        self.head = nn.Linear(width, VOCAB, bias=False)

    def forward(self, idx, target):
        x = self.tokens(idx) + self.places.weight[: idx.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.float().view(-1, VOCAB), target.view(-1))


def product(n, dtype, device, steps):
    a = torch.randn(n, n, device=device).to(dtype)
    b = torch.randn(n, n, device=device).to(dtype)
    return median_ms(lambda: a @ b, device, steps)


def attention(preset, dtype, device, steps):
    _, heads, width, block, batch = PRESETS[preset]
    q, k, v = (
        torch.randn(batch, heads, block, width // heads, device=device, dtype=dtype, requires_grad=True)
        for _ in range(3)
    )

    def work():
        F.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()

    return median_ms(work, device, steps)


def step(preset, scheme, device, steps):
    layers, heads, width, block, batch = PRESETS[preset]
    model = Model(layers, heads, width, block).to(device)
    if scheme == "bf16":
        model = model.bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
    idx = torch.randint(VOCAB, (batch, block), device=device)
    target = torch.randint(VOCAB, (batch, block), device=device)

    def work():
        with torch.autocast(device, dtype=torch.bfloat16, enabled=scheme == "mixed"):
            loss = model(idx, target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.item()

    return median_ms(work, device, steps)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--sizes", default="4096 8192")
    p.add_argument("--preset", default="seed", choices=list(PRESETS))
    p.add_argument("--schemes", default="fp32,mixed")
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--out", required=True)
    args = p.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    types = {"fp32": torch.float32, "bf16": torch.bfloat16}
    rows = []
    for n in map(int, args.sizes.split()):
        for dtype, t in types.items():
            ms = product(n, t, device, args.steps)
            rows.append(["product", n, dtype, f"{ms:.4f}", f"{2 * n**3 / ms / 1e9:.3f}"])
    for dtype, t in types.items():
        rows.append(["attention, both ways", args.preset, dtype, f"{attention(args.preset, t, device, args.steps):.4f}", ""])
    for scheme in args.schemes.split(","):
        if scheme in ("fp32", "mixed", "bf16"):
            rows.append(["step", args.preset, scheme, f"{step(args.preset, scheme, device, args.steps):.4f}", ""])
    with open(args.out, "w", newline="") as f:
        w = csv.writer(f)
        w.writerow(["what", "size", "type", "ms", f"tflops (torch {torch.__version__}, {name})"])
        w.writerows(rows)


if __name__ == "__main__":
    main()
