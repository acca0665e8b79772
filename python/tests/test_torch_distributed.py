"""finegemm.torch's layers under DDP and FSDP2: two processes on the CPU, which exchange through gloo."""

import copy

import pytest

from torch_support import ft, torch

distributed = pytest.importorskip("torch.distributed", reason="torch is built without torch.distributed")
if not (distributed.is_available() and distributed.is_gloo_available()):
    pytest.skip("torch is built without gloo", allow_module_level=True)

WORLD, ROWS, STEPS = 2, 32, 3
K, HIDDEN, GROUPS = 64, 128, 2


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = ft.Linear(K, HIDDEN), ft.Linear(HIDDEN, K)
        self.experts = ft.GroupedLinear(GROUPS, K, K)

    def forward(self, x):
        x = x + self.down(torch.nn.functional.silu(self.up(x)))
        return x + self.experts(x, [0, x.shape[0] // 4, x.shape[0]], all_rows=True)


def rows_of(rank, step):
    return torch.randn(ROWS, K, generator=torch.Generator().manual_seed(10 * step + rank))


def loss_of(model, rank, step):
    return model(rows_of(rank, step)).square().mean()


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


def wrapped(model, kind):
    if kind == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model)
    from torch.distributed.fsdp import fully_shard

    # Without a mesh it is of GPUs, where there is one.
    how = {"mesh": distributed.init_device_mesh("cpu", (WORLD,)), "reshard_after_forward": kind == "fsdp2"}
    for module in (model.up, model.down, model.experts):
        fully_shard(module, **how)
    return fully_shard(model, **how)


def whole(x):
    return x.full_tensor() if hasattr(x, "full_tensor") else x


def work(rank, kind, file):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=WORLD)
    try:
        torch.manual_seed(0)
        model = Net()
        expected, single = alone(twin := copy.deepcopy(model)), twin
        model = wrapped(model, kind)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        for step in range(STEPS):
            optimizer.zero_grad()
            loss_of(model, rank, step).backward()
            for p, want in zip(model.parameters(), expected[step], strict=True):
                torch.testing.assert_close(whole(p.grad), want, rtol=1e-4, atol=1e-5)
            optimizer.step()
        if (
            kind != "ddp"
        ):  # weights that are written while nobody holds the whole: nothing tells of it but the gathering
            with torch.no_grad():
                model(rows_of(0, 9))  # quantises what there is
                for p, q in zip(model.parameters(), single.parameters(), strict=True):
                    p.mul_(2), q.mul_(2)
        with torch.no_grad():
            torch.testing.assert_close(model(rows_of(0, 9)), single(rows_of(0, 9)), rtol=1e-2, atol=1e-3)
    finally:
        distributed.destroy_process_group()


@pytest.mark.parametrize("kind", ("ddp", "fsdp2", "fsdp2, whole weights kept after forward"))
def test_processes_have_the_gradients_of_one(kind, tmp_path):
    torch.multiprocessing.spawn(work, (kind, tmp_path / "rendezvous"), nprocs=WORLD)
