"""The persistent kernel beside the layer's launches: bits and times."""
import ctypes, os, sys, time
sys.path.insert(0, "bench")
import torch
from gpu_layer import LAYERS, Layer, captured, codes, experts_scales, replay_us
from gpu_library import Library
from weights_read import reader

JOB = os.environ["JOB"]
begin = time.time()
def say(*a):
    print(f"{time.time() - begin:6.1f}", *a, flush=True)
library = Library(".gpu/libfinegemm.so")
def opened(path):
    c = ctypes.CDLL(path)
    c.prepare.restype = ctypes.c_void_p
    c.workspace_bytes.restype = ctypes.c_int64
    return c
NAMES = os.environ["NAMES"].split()
libs = {n: opened(f"/tmp/layer/{n}.so") for n in NAMES}
flush = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
SMS = torch.cuda.get_device_properties(0).multi_processor_count
FORMS = {"f16": 0, "f32": 1, "f64": 2, "s5 prefetch": 3, "prefetch": 4, "f32 prefetch": 5, "no ends": 6, "prefetch dry": 7, "s7 prefetch dry": 8}
ALL = os.environ.get("VARIANTS") == "1"
ratios = {}
g = torch.Generator("cuda"); g.manual_seed(1)

def part_of(whole, tokens, choices, kind):
    experts = len(whole[0])
    if kind == "rank":
        experts, tokens, choices = experts // 32, tokens * choices, 1
    odds = torch.ones(experts, device="cuda")
    if kind == "zipf":
        odds = 1 / (1 + torch.randperm(experts, device="cuda", generator=g).float())
    ids = torch.multinomial(odds.expand(tokens, experts), choices, generator=g)
    x = torch.randn(tokens, whole[0].shape[2], device="cuda", generator=g).bfloat16()
    return Layer(x, ids, torch.rand(tokens, choices, device="cuda", generator=g), tuple(w[:experts] for w in whole))

def proto(layer, out, form, grid=SMS, c=None, clears=False):
    tokens, k = layer.ids.shape
    experts, hidden, pairs = layer.of_experts[2].shape
    bytes_ = c.workspace_bytes(tokens * k, hidden, pairs, experts)
    ws = torch.full((bytes_,), 255, dtype=torch.uint8, device="cuda")
    counters = torch.zeros(65536, dtype=torch.int32, device="cuda")
    pp = lambda t: ctypes.c_void_p(t.data_ptr())
    gu, gus, d, ds = layer.of_experts
    for t in (gu, gus, d, ds, layer.ids, layer.x, layer.weights):
        assert t.is_contiguous()
    probes = torch.zeros(SMS, 32, dtype=torch.int64, device="cuda")
    h = c.prepare(pp(layer.x), pp(layer.ids), int(layer.ids.dtype == torch.int64), pp(layer.weights), pp(gu), pp(gus), pp(d), pp(ds),
                  pp(out), tokens, k, hidden, pairs, experts, pp(ws), pp(counters), pp(probes), form, grid)
    assert h
    def call(keep=(layer, out, ws, counters)):
        if clears:
            counters[:1024].zero_()
        e = c.launch(ctypes.c_void_p(h), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        assert e == 0, e
    call.counters, call.probes = counters, probes
    return call

def differ(a, b):
    return int((a.view(torch.int16) != b.view(torch.int16)).sum())

for name, hidden, pairs, experts, choices in LAYERS[::-1]:
    whole = (codes(g, experts, 2 * pairs, hidden), experts_scales(g, experts, 2 * pairs // 128, hidden // 128),
             codes(g, experts, hidden, pairs), experts_scales(g, experts, hidden // 128, pairs // 128))
    for tokens, kind in ((1, "even"), (1, "zipf"), (1, "rank"), (8, "rank"), (8, "even")):
        layer = part_of(whole, tokens, choices, kind)
        out, wanted = torch.empty_like(layer.x), torch.empty_like(layer.x)
        memory = layer.workspace(library).t
        moe = layer.prepare(library, wanted, memory)
        moe(); torch.cuda.synchronize()
        most = int(torch.bincount(layer.ids.flatten()).max())
        if tokens * layer.ids.shape[1] > 64 and kind != "rank": continue
        forms = NAMES
        calls = {"moe": moe, "chain, pdl": layer.chain(library, torch.empty_like(out), True), "chain": layer.chain(library, torch.empty_like(out), False)}
        for f in forms:
            call = proto(layer, out, int(most > 16), c=libs[f])
            bad = []
            for _ in range(5):
                out.fill_(float("nan")); call(); torch.cuda.synchronize()
                bad.append(differ(out, wanted))
            left = 0
            if any(bad) or left:
                say("BITS", name, kind, tokens, f, bad, "counters left", left, "largest", float((out.float() - wanted.float()).abs().nan_to_num(1e9).max()), float(wanted.abs().max()))
            calls[f] = call
        calls["nothing"] = lambda: flush[:16].zero_()
        calls["read"] = reader(layer.ids.unique(), layer.of_experts[0], layer.of_experts[2])
        graphs = {n: captured(x) for n, x in calls.items()}
        us = replay_us(graphs, 13)
        best = min(us[f] for f in forms)
        say(name, kind, tokens, "most", most, us, "ratio", round(min(us["chain"], us["chain, pdl"]) / best, 3))
        if True:
            for f in forms: ratios.setdefault(f, []).append(min(us["chain"], us["chain, pdl"]) / us[f])
            ratios.setdefault("best", []).append(min(us["chain"], us["chain, pdl"]) / best)
            ratios.setdefault("moe", []).append(min(us["chain"], us["chain, pdl"]) / us["moe"])
    del whole, layer
say("mean ratio", {n: (len(r), round(sum(r) / len(r), 3), [round(x, 2) for x in r]) for n, r in ratios.items()})
