"""finegemm.torch's layers under DDP and FSDP2, and deep_ep: two processes on the CPU, and on two GPUs if there are."""

import copy
import os

import pytest

from torch_support import ft, hopper, torch

distributed = pytest.importorskip("torch.distributed", reason="torch is built without torch.distributed")
if not (distributed.is_available() and distributed.is_gloo_available()):
    pytest.skip("torch is built without gloo", allow_module_level=True)

WORLD, ROWS, STEPS = 2, 32, 3
K, HIDDEN, GROUPS = 64, 128, 2


DEVICES = ["cpu"] + ["cuda"] * (hopper() and torch.cuda.device_count() >= WORLD and distributed.is_nccl_available())
DDP, FSDP2, KEPT = "DDP", "FSDP2", "FSDP2 with whole weights kept after forward"


class Net(torch.nn.Module):
    def __init__(self, checkpointed):
        super().__init__()
        self.checkpointed = checkpointed
        self.up, self.down = ft.Linear(K, HIDDEN), ft.Linear(HIDDEN, K)
        self.experts = ft.GroupedLinear(GROUPS, K, K)

    def layers(self):
        return self.up, self.down, self.experts

    def parts(self, x):
        x = x + self.down(torch.nn.functional.silu(self.up(x)))
        return x + self.experts(x, [0, x.shape[0] // 4, x.shape[0]], all_rows=True)

    def forward(self, x):
        if self.checkpointed:
            return torch.utils.checkpoint.checkpoint(self.parts, x, use_reentrant=False)
        return self.parts(x)


def loss_of(model, rank, step):
    x = torch.randn(ROWS, K, generator=torch.Generator().manual_seed(10 * step + rank))
    return model(x.to(next(model.parameters()).device)).square().mean()


def alone(model):
    """What each step's gradients and the weights are when one process does the work of all."""
    optimizer, gradients = torch.optim.SGD(model.parameters(), lr=0.5), []
    for step in range(STEPS):
        optimizer.zero_grad()
        for rank in range(WORLD):
            (loss_of(model, rank, step) / WORLD).backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
        optimizer.step()
    return gradients


def wrapped(model, kind, device):
    if kind == DDP:
        return torch.nn.parallel.DistributedDataParallel(model)
    from torch.distributed.fsdp import fully_shard

    # Without a mesh it is of GPUs, where there is one.
    how = {"mesh": distributed.init_device_mesh(device, (WORLD,)), "reshard_after_forward": kind == FSDP2}
    for module in model.layers():
        fully_shard(module, **how)
    return fully_shard(model, **how)


def whole(x):
    return x.full_tensor() if hasattr(x, "full_tensor") else x


def trained(kind, checkpointed, rank, device):
    """Each step has the gradients of one process, and the last weights give what its weights give."""
    torch.manual_seed(0)
    model = Net(checkpointed).to(device)
    expected, single = alone(twin := copy.deepcopy(model)), twin
    model = wrapped(model, kind, device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        for p, want in zip(model.parameters(), expected[step], strict=True):
            torch.testing.assert_close(whole(p.grad), want, rtol=1e-4, atol=1e-5)
        optimizer.step()
    if kind != DDP:  # weights that are written while nobody holds the whole: nothing tells of it but the gathering
        with torch.no_grad():
            loss_of(model, 0, 9)  # quantises what there is
            for p, q in zip(model.parameters(), single.parameters(), strict=True):
                p.mul_(2), q.mul_(2)
    with torch.no_grad():
        torch.testing.assert_close(loss_of(model, 0, 9), loss_of(single, 0, 9), rtol=1e-4, atol=1e-5)


def accumulated(kind, rank, device):
    """Gradients of two batches in main_grad of the whole weights, summed over processes by who owns them."""
    torch.manual_seed(0)
    model = Net(checkpointed=True).to(device)
    single, layers = copy.deepcopy(model), model.layers()
    for step in range(2):
        for other in range(WORLD):
            loss_of(single, other, step).backward()
    wants = [layer.weight.grad for layer in single.layers()]
    sums = [torch.zeros_like(want) for want in wants]
    model = wrapped(model, kind, device)
    for layer, main_grad in zip(layers, sums, strict=True):  # FSDP2 has gathered the weight when this hook runs
        layer.register_forward_pre_hook(lambda it, _, main_grad=main_grad: setattr(it.weight, "main_grad", main_grad))
    for step in range(2):
        loss_of(model, rank, step).backward()
    for layer, main_grad, want in zip(layers, sums, wants, strict=True):
        assert layer.weight.grad is None or not whole(layer.weight.grad).any()
        distributed.all_reduce(main_grad)
        torch.testing.assert_close(main_grad, want, rtol=1e-4, atol=1e-5)


def sent_to_experts(rank, device):
    """Rows go to another rank and come back, by both of deep_ep's ways, as many as each has."""
    from finegemm import deep_ep

    buffer = deep_ep.Buffer(distributed.group.WORLD)
    x = torch.randn(3 + 4 * rank, 256, generator=torch.Generator().manual_seed(rank)).bfloat16().to(device)
    ids = torch.tensor([[0, 3], [3, 2], [1, -1]], device=device).repeat(3, 1)[: len(x)]
    odds = torch.full(ids.shape, 0.5, device=device)
    per_rank, _, per_expert, in_rank, event = buffer.get_dispatch_layout(ids, 4, async_finish=True)
    came, *_, handle, event = buffer.dispatch(
        x, None, per_rank, None, in_rank, per_expert, ids, odds, previous_event=event, async_finish=True
    )
    y, _, event = buffer.combine(came, handle, previous_event=event, async_finish=True)
    event.current_stream_wait()
    torch.testing.assert_close(y, x * in_rank.sum(1, keepdim=True).bfloat16(), rtol=0, atol=0)
    rows, _, handle, _, hook = buffer.low_latency_dispatch(x, ids, 8, 4, use_fp8=False, return_recv_hook=True)
    hook()
    y, _, hook = buffer.low_latency_combine(rows, ids, odds, handle, return_recv_hook=True)
    hook()
    torch.testing.assert_close(y, x * ((ids >= 0).sum(1, keepdim=True) / 2).bfloat16(), rtol=0, atol=0)


def work(rank, device, cases, file):
    torch.set_num_threads(1)
    if device == "cuda":
        torch.cuda.set_device(rank)
    backend = {"cpu": "gloo", "cuda": "nccl"}[device]
    distributed.init_process_group(backend, init_method=f"file://{file}", rank=rank, world_size=WORLD)
    try:
        for case, *arguments in cases:
            try:
                case(*arguments, rank, device)
            except Exception as e:
                raise AssertionError(f"{case.__name__} {arguments} on {device}: {e}") from e
        distributed.barrier()  # nobody leaves while another one still exchanges
    finally:
        distributed.destroy_process_group()
    # All is well. The end of an interpreter races with torch's threads that wait for its lock: once it aborted there,
    # with "terminate called without an active exception".
    os._exit(0)


@pytest.mark.parametrize("device", DEVICES)
def test_processes_have_the_gradients_of_one(device, tmp_path):
    cases = [
        (sent_to_experts,),
        *((trained, kind, checkpointed) for kind in (DDP, FSDP2, KEPT) for checkpointed in (False, True)),
        *((accumulated, kind) for kind in (DDP, FSDP2, KEPT)),
    ]
    torch.multiprocessing.spawn(work, (device, cases, tmp_path / "rendezvous"), nprocs=WORLD)
