"""Events of streams, as DeepEP's calls take and return them."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import torch


class EventHandle:
    """What the current stream has been given up to here; without CUDA everything has been done."""

    def __init__(self) -> None:
        self.event: Any = None
        if torch.cuda.is_initialized():
            self.event = torch.cuda.Event()
            self.event.record()

    def current_stream_wait(self) -> None:
        if self.event is not None:
            torch.cuda.current_stream().wait_event(self.event)


class EventOverlap:
    """An event, or none. `with event:` waits for it behind the block.

    extra_tensors: are kept as long as this is.
    """

    def __init__(self, event: EventHandle | None = None, extra_tensors: tuple[Any, ...] | None = None) -> None:
        self.event = event
        self.extra_tensors = extra_tensors

    def current_stream_wait(self) -> None:
        """What the current stream is given from now on begins behind the event."""
        if self.event is not None:
            self.event.current_stream_wait()

    def __enter__(self) -> EventOverlap:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.current_stream_wait()
