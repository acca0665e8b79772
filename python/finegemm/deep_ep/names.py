"""What becomes of each name of DeepEP, as the table of docs/from-deepep.md."""

from .missing import METHODS, NAMES

_SERVED = (
    ("Buffer", "`group` of any backend of torch.distributed that has all-to-all; sizes and modes are kept"),
    (
        "Buffer.get_dispatch_layout Buffer.dispatch Buffer.combine Buffer.internode_dispatch Buffer.internode_combine",
        "any hidden size, any number of ranks, over hosts as within one; rows come in the order of ranks and tokens",
    ),
    (
        "Buffer.low_latency_dispatch Buffer.low_latency_combine",
        "any hidden size; codes are those of `quantize_rows`; rows of an expert in the order of ranks and tokens; sums "
        "in the order of choices; `use_logfmt`: in bfloat16 all the same; `use_ue8m0`, waiting times: raise",
    ),
    ("Buffer.get_next_low_latency_combine_buffer", "new memory"),
    ("Buffer.get_low_latency_rdma_size_hint", "bytes that calls take from torch; the Buffer has none"),
    ("Buffer.clean_low_latency_buffer Buffer.destroy", "nothing has to be done"),
    ("Buffer.capture EventOverlap EventHandle utils.EventOverlap utils.EventHandle", "without CUDA nothing waits"),
    ("Buffer.get_comm_stream", "the current stream, on which all is queued"),
    (
        "Buffer.num_sms Buffer.set_num_sms Buffer.get_dispatch_config Buffer.get_combine_config Config",
        "kept, without effect: the group's library has settings of its own; any number of ranks; hints are 0",
    ),
    ("Buffer.is_sm90_compiled topk_idx_t buffer utils __version__", ""),
)


def table() -> list[str]:
    """Lines of Markdown: a row for names that are alike."""
    rows = [("DeepEP", "", "differs"), ("---",) * 3]
    rows += [(_code(names), "served", differs) for names, differs in _SERVED]
    for reason in dict.fromkeys(METHODS.values()):
        rows.append((_code(" ".join(f"Buffer.{n}" for n, why in METHODS.items() if why == reason)), "raises", reason))
    rows.append((_code(" ".join(NAMES)), "absent", next(iter(NAMES.values()))))
    return [f"| {' | '.join(row)} |" for row in rows]


def _code(names: str) -> str:
    return ", ".join(f"`{name}`" for name in names.split())
