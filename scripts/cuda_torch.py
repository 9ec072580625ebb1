"""Prints what scripts/cuda.sh measured beside PyTorch on the same GPU, measured now.

    python3 scripts/cuda_torch.py            products and the mixed training step, at the sizes of cuda_env.json
    python3 scripts/cuda_torch.py --out F    the table as CSV too

Needs PyTorch with CUDA and numpy. The model is the same char-level GPT (pre-norm, learned positions, GELU,
no bias, no dropout, tied head), the optimizer AdamW; PyTorch runs it eagerly.
"""

import argparse
import csv
import json
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent / "results" / "evidence"


def rows(name):
    path = ROOT / name
    if not path.exists():
        sys.exit(f"{path} is not there: run `sh scripts/cuda.sh` first")
    with open(path, newline="") as f:
        return list(csv.DictReader(f))


def timed(torch, work, warmup, steps):
    """Median milliseconds by CUDA events."""
    for _ in range(warmup):
        work()
    out = []
    for _ in range(steps):
        a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        a.record()
        work()
        b.record()
        torch.cuda.synchronize()
        out.append(a.elapsed_time(b))
    return statistics.median(out)


def products(torch, n):
    kinds = {"fp32": (torch.float32, False), "tf32": (torch.float32, True),
             "bf16": (torch.bfloat16, False), "fp16": (torch.float16, False)}
    out = {}
    for name, (dtype, tf32) in kinds.items():
        torch.backends.cuda.matmul.allow_tf32 = tf32
        a, b = (torch.randn(n, n, device="cuda", dtype=dtype) for _ in range(2))
        out[name] = timed(torch, lambda: a @ b, 10, 50)
    torch.backends.cuda.matmul.allow_tf32 = False
    return out


def model(torch, vocab, layers, heads, width, block):
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.ln2 = (nn.LayerNorm(width, bias=False) for _ in range(2))
            self.qkv = nn.Linear(width, 3 * width, bias=False)
            self.proj = nn.Linear(width, width, bias=False)
            self.up = nn.Linear(width, 4 * width, bias=False)
            self.down = nn.Linear(4 * width, width, bias=False)

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = (y.view(b, t, heads, c // heads).transpose(1, 2)
                       for y in self.qkv(self.ln1(x)).split(c, dim=2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
            return x + self.down(F.gelu(self.up(self.ln2(x))))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tok, self.pos = nn.Embedding(vocab, width), nn.Embedding(block, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.ln = nn.LayerNorm(width, bias=False)
            self.head = nn.Linear(width, vocab, bias=False)
            self.head.weight = self.tok.weight
            self.apply(lambda m: nn.init.normal_(m.weight, 0.0, 0.02)
                       if isinstance(m, (nn.Linear, nn.Embedding)) else None)

        def forward(self, idx, target):
            x = self.tok(idx) + self.pos.weight[: idx.shape[1]]
            for b in self.blocks:
                x = b(x)
            logits = self.head(self.ln(x))
            return F.cross_entropy(logits.view(-1, vocab).float(), target.view(-1))

    return Gpt().cuda()


SIZES = {"seed": (6, 6, 384, 256, 64), "tiny": (2, 2, 64, 64, 8)}


def training(torch, preset, vocab=65):
    layers, heads, width, block, batch = SIZES[preset]
    out = {}
    for scheme in ("fp32", "mixed", "fp16"):
        torch.manual_seed(1)
        net = model(torch, vocab, layers, heads, width, block)
        opt = torch.optim.AdamW(net.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
        low = {"mixed": torch.bfloat16, "fp16": torch.float16}.get(scheme)
        scaler = torch.amp.GradScaler("cuda", enabled=scheme == "fp16")
        idx, target = (torch.randint(vocab, (batch, block), device="cuda") for _ in range(2))

        def step():
            opt.zero_grad(set_to_none=True)
            with torch.autocast("cuda", dtype=low, enabled=low is not None):
                loss = net(idx, target)
            scaler.scale(loss).backward()
            scaler.unscale_(opt)
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(opt)
            scaler.update()

        out[scheme] = timed(torch, step, 10, 30)
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", type=pathlib.Path, help="write the table as CSV")
    args = p.parse_args()
    ours, summary = rows("cuda_gemm.csv"), rows("cuda_summary.csv")
    env = json.loads((ROOT / "cuda_env.json").read_text())
    try:
        import torch
    except ImportError:
        sys.exit("PyTorch is not there (pip install torch)")
    if not torch.cuda.is_available():
        sys.exit("PyTorch sees no CUDA device")
    table = []
    theirs = products(torch, env["sizes"]["gemm_n"])
    for r in ours:
        if r["dtype"] in theirs:
            table.append((f"product {r['dtype']}", r["path"], float(r["ms"]), theirs[r["dtype"]]))
    theirs = training(torch, env["sizes"]["preset"])
    for r in summary:
        if r["scheme"] in theirs and r["step_ms"]:
            table.append((f"step {r['scheme']}", "train --numerics fast", float(r["step_ms"]), theirs[r["scheme"]]))
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}; milliseconds")
    print(f"{'what':<16} {'isobit':>10} {'PyTorch':>10} {'speed':>8}  by")
    for what, by, mine, other in table:
        print(f"{what:<16} {mine:>10.3f} {other:>10.3f} {other / mine:>7.2f}x  {by}")
    if args.out:
        with open(args.out, "w", newline="") as f:
            w = csv.writer(f)
            w.writerow(["what", "by", "isobit_ms", "pytorch_ms", "speed"])
            w.writerows((a, b, f"{m:.4f}", f"{o:.4f}", f"{o / m:.4f}") for a, b, m, o in table)


if __name__ == "__main__":
    main()
