"""finegemm.deep_ep: which names there are, how they are called, what others say, and the package's name."""

import importlib
import inspect
import operator
import os
import pathlib
import sys

import pytest

import finegemm
from torch_support import torch

distributed = pytest.importorskip("torch.distributed", reason="torch is built without torch.distributed")
if not distributed.is_available():
    pytest.skip("torch is built without torch.distributed", allow_module_level=True)
from finegemm import deep_ep  # noqa: E402
from finegemm.deep_ep import names  # noqa: E402
from finegemm.deep_ep.install import alias  # noqa: E402

PARAMETERS = {
    "__init__": "self group num_nvl_bytes num_rdma_bytes low_latency_mode num_qps_per_rank "
    "allow_nvlink_for_low_latency_mode allow_mnnvl use_fabric explicitly_destroy enable_shrink comm",
    "get_dispatch_layout": "self topk_idx num_experts previous_event async_finish allocate_on_comm_stream",
    "dispatch": "self x handle num_tokens_per_rank num_tokens_per_rdma_rank is_token_in_rank num_tokens_per_expert "
    "topk_idx topk_weights expert_alignment num_worst_tokens config previous_event async_finish "
    "allocate_on_comm_stream",
    "combine": "self x handle topk_weights bias config previous_event async_finish allocate_on_comm_stream",
    "low_latency_dispatch": "self x topk_idx num_max_dispatch_tokens_per_rank num_experts "
    "cumulative_local_expert_recv_stats dispatch_wait_recv_cost_stats use_fp8 round_scale use_ue8m0 async_finish "
    "return_recv_hook",
    "low_latency_combine": "self x topk_idx topk_weights handle use_logfmt zero_copy async_finish return_recv_hook out "
    "combine_wait_recv_cost_stats",
    "clean_low_latency_buffer": "self num_max_dispatch_tokens_per_rank hidden num_experts",
    "get_low_latency_rdma_size_hint": "num_max_dispatch_tokens_per_rank hidden num_ranks num_experts",
    "get_next_low_latency_combine_buffer": "self handle",
}


def test_methods_take_the_arguments_in_their_order():
    for name, parameters in PARAMETERS.items():
        assert " ".join(inspect.signature(getattr(deep_ep.Buffer, name)).parameters) == parameters, name


def test_each_name_of_the_table_is_there():
    for line in names.table()[2:]:
        listed, kind, _ = line.removeprefix("| ").removesuffix(" |").split(" | ")
        for name in listed.split(", "):
            found = operator.attrgetter(name.strip("`"))
            if kind == "absent":
                with pytest.raises(AttributeError):
                    found(deep_ep)
            else:
                assert found(deep_ep) is not None
    public = {f"Buffer.{name}" for name in vars(deep_ep.Buffer) if not name.startswith("_")}
    assert not [name for name in sorted(public) if f"`{name}`" not in "".join(names.table())]


def test_documents_have_the_table():
    path = pathlib.Path(__file__).parents[2] / "docs" / "from-deepep.md"
    begin, end, text = "<!-- names -->\n", "<!-- end of names -->", path.read_text()
    wanted = begin + "\n".join(names.table()) + "\n" + end
    if os.environ.get("FG_UPDATE_GOLDEN"):
        text = text[: text.index(begin)] + wanted + text[text.index(end) + len(end) :]
        path.write_text(text)
    assert wanted in text


def test_the_installed_name_is_this_package(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    assert alias.main(["--install", "--force", "--target", str(tmp_path)], names.table) == 0
    there = importlib.import_module("deep_ep")
    assert there is deep_ep and importlib.import_module("deep_ep.utils") is deep_ep.utils
    assert there.Buffer is importlib.import_module("deep_ep.buffer").Buffer


def test_names_that_are_not_served_say_so():
    buffer = deep_ep.Buffer.__new__(deep_ep.Buffer)
    with pytest.raises(finegemm.Unsupported, match="get_local_buffer_tensor: calls take their memory from torch"):
        buffer.get_local_buffer_tensor(torch.int8)
    with pytest.raises(finegemm.Unsupported, match="low_latency_update_mask_buffer: ranks cannot be masked"):
        buffer.low_latency_update_mask_buffer(1, True)
    with pytest.raises(AttributeError, match="'ElasticBuffer': it is of another interface of DeepEP's"):
        _ = deep_ep.ElasticBuffer
    assert not hasattr(deep_ep, "ElasticBuffer") and not hasattr(deep_ep, "other")


def test_events_wait_and_settings_are_kept():
    assert deep_ep.Buffer.is_sm90_compiled() and not torch.cuda.is_initialized()
    deep_ep.Buffer.set_num_sms(24)
    config = deep_ep.Buffer.get_dispatch_config(16)
    assert config.num_sms == 24 and deep_ep.Buffer.get_combine_config(3).num_sms == 24
    assert config.get_nvl_buffer_size_hint(14336, 8) == config.get_rdma_buffer_size_hint(14336, 8) == 0
    assert deep_ep.Config(20, 6, 256, 6, 128).num_max_rdma_chunked_recv_tokens == 128
    assert deep_ep.Buffer.get_low_latency_rdma_size_hint(128, 7168, 8, 256) == 128 * 8 * 32 * 7168 * 2
    with deep_ep.Buffer.capture() as event:
        assert event.event is not None
    deep_ep.EventOverlap().current_stream_wait()
    deep_ep.Buffer.set_num_sms(20)
