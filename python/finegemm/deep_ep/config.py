"""Settings of DeepEP's kernels, which are kept and have no effect."""

from typing import NamedTuple


class Config(NamedTuple):
    """SMs, and rows of messages and buffers there. Here NCCL, or what else the group has, sends messages."""

    num_sms: int = 20
    num_max_nvl_chunked_send_tokens: int = 6
    num_max_nvl_chunked_recv_tokens: int = 256
    num_max_rdma_chunked_send_tokens: int = 6
    num_max_rdma_chunked_recv_tokens: int = 256

    def get_nvl_buffer_size_hint(self, hidden_bytes: int, num_ranks: int) -> int:
        """0: calls take the memory that they need from torch."""
        return 0

    def get_rdma_buffer_size_hint(self, hidden_bytes: int, num_ranks: int) -> int:
        """0, as the other."""
        return 0
