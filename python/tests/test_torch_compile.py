"""examples/python/torch_compile.py: a compiled model has FP8 layers as nodes of one graph."""

import pytest

from support import program

torch = pytest.importorskip("torch", reason="torch is not installed")
DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)


@pytest.fixture(scope="module")
def example():
    return program("examples/python/torch_compile.py")


@pytest.mark.parametrize("device", DEVICES)
def test_the_compiled_model_has_the_bits_of_the_plain_one(example, device):
    model, _, x = example.example(device)
    graphs = []

    def count(graph, inputs):
        graphs.append(graph)
        return graph.forward

    with torch.no_grad():
        compiled = torch.compile(model, fullgraph=True, backend=count)(x)
        assert torch.equal(compiled, model(x))
    assert len(graphs) == 1
    calls = [node.target for node in graphs[0].graph.nodes if node.op == "call_function"]
    assert sum(str(target) == "finegemm.gemm_new" for target in calls) == 2


def test_it_is_as_good_as_its_roundings(example):
    assert example.main() == 0
