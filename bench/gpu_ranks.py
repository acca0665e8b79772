"""Checks of a layer of experts over ranks on one GPU, which is the only rank: bits of one call, graphs, overflows."""

import ctypes
import dataclasses
from functools import cached_property

import torch

from gpu_layer import Layer, Layers, captured
from gpu_library import C, integers, matrix
from gpu_routing import Surrounded


class Ranks(Layers):
    @cached_property
    def communicator(self) -> ctypes.c_void_p:
        """By NCCL, which torch has loaded; without a GPU of a thread."""
        library, made, name = self.tested, ctypes.c_void_p(), C["communicator_id"]()
        c, error, to = library.c, ctypes.byref(library.error), ctypes.byref(made)
        if self.generator.device.type == "cpu":
            library.check(c.finegemm_communicators_of_threads(1, None, to, error))
            return made
        library.check(c.finegemm_communicator_make_id(library.context, ctypes.byref(name), None, error))
        create, device = c.finegemm_communicator_create, torch.cuda.current_device()
        library.check(create(library.context, ctypes.byref(name), 0, 1, device, None, to, error))
        return made

    def over_ranks(self, layer: Layer, out: torch.Tensor, capacity: int, memory=None, counts=None, peers=None):
        """A function without arguments that queues the layer. `peers`: of peer_memory."""
        args, options = layer.structs(out, memory)
        numbers = matrix(None) if counts is None else integers(counts)
        size = ctypes.sizeof(C["ep_options"])
        how = C["ep_options"](struct_size=size, capacity=capacity, counts=numbers, memory=peers)

        def call(keep=(layer, memory, counts)):
            self.tested.ep_moe(self.communicator, args, how, options, out)

        return call

    def places(self, layer: Layer, capacity: int) -> Surrounded:
        """A workspace as large as it must be, full of NaN, with canaries around it."""
        shape = C["moe_shape"](struct_size=ctypes.sizeof(C["moe_shape"]), **layer.shape)
        size, function = ctypes.c_int64(), self.tested.c.finegemm_ep_moe_workspace_bytes
        error = ctypes.byref(self.tested.error)
        self.tested.check(function(ctypes.byref(shape), 1, ctypes.c_int64(capacity), ctypes.byref(size), error))
        memory = Surrounded(1, size.value, dtype=torch.uint8, device="cuda")
        memory.t.fill_(0xFF)
        return memory

    def peer_memory(self, layer: Layer) -> ctypes.c_void_p:
        """Memory that ranks reach, for the layer's tokens."""
        library, made, to = self.tested, ctypes.c_void_p(), ctypes.byref
        shape = C["moe_shape"](struct_size=ctypes.sizeof(C["moe_shape"]), **layer.shape)
        create = library.c.finegemm_peer_memory_create
        library.check(create(self.communicator, to(shape), to(made), to(library.error)))
        assert library.c.finegemm_peer_memory_is_reached(made)
        return made

    def layer_of_ranks(self) -> Layer:
        layer = self.random_layer_of_experts()
        layer.options.pop("rows", None), layer.options.pop("weights_first", None)  # which it has not
        return dataclasses.replace(layer, biases=(None, None))

    def ep_bits(self):
        """Random layers, exactly and in places, with what surrounds them: the bits of one call."""
        count = max(1, self.options.shapes // 20)
        for _ in range(count):
            layer = self.layer_of_ranks()
            wanted, experts = layer.run(self.tested)[0], len(layer.of_experts[0])
            chosen = int(((layer.ids >= 0) & (layer.ids < experts)).sum())
            most, peers = layer.ids.numel() + self.random.randint(0, 9), self.peer_memory(layer)
            for capacity, reached in ((0, None), (most, None), (most, peers)):
                out = Surrounded(*layer.x.shape, dtype=torch.bfloat16)
                counts = torch.full((1, 1), -1, dtype=torch.int32, device="cuda")
                memory = self.places(layer, capacity) if capacity else None
                self.over_ranks(layer, out.t, capacity, memory.t if memory else None, counts, reached)()
                torch.cuda.synchronize()
                if n := int((out.all != wanted.all).sum()):
                    raise AssertionError(f"{n} words differ from those of one call: {layer.shape}, capacity {capacity}")
                if memory:
                    memory.t.fill_(0xFF)
                    if n := int((memory.all != self.places(layer, capacity).all).sum()):
                        raise AssertionError(f"{n} words beside the workspace were written: {layer.shape}")
                if int(counts) != chosen:
                    raise AssertionError(f"{int(counts)} choices were counted of {chosen}: {layer.shape}")
            self.tested.c.finegemm_peer_memory_destroy(peers)
        return {"layers": count}

    def ep_many(self):
        """So many rows that results travel beside products, again and again: the bits of one call."""
        layer = self.layer_of(1200, 4, 512, 256, 16)
        wanted, peers = layer.run(self.tested)[0].t, self.peer_memory(layer)
        out = torch.empty_like(layer.x)
        call = self.over_ranks(layer, out, layer.ids.numel(), peers=peers)
        for i in range(self.RUNS):
            out.zero_()
            call()
            if n := int((out.view(torch.int16) != wanted.view(torch.int16)).sum()):
                raise AssertionError(f"{n} elements of call {i} differ")
        self.tested.c.finegemm_peer_memory_destroy(peers)
        return {"calls": self.RUNS}

    def ep_graph(self, tokens: int = 50):
        """A graph whose tokens and ids change, some of which do not fit: the bits of calls, and NaN."""
        return {"replays": self.replays_of(tokens, False), "through memory": self.replays_of(tokens, True)}

    def replays_of(self, tokens: int, reached: bool) -> int:
        layer = self.layer_of(tokens, 4, 512, 256, 16)
        out, wanted = torch.empty_like(layer.x), torch.empty_like(layer.x)
        capacity = 3 * tokens
        memory = self.places(layer, capacity)
        graph = captured(
            self.over_ranks(layer, out, capacity, memory.t, peers=self.peer_memory(layer) if reached else None)
        )
        call = layer.prepare(self.tested, wanted)
        for i in range(max(1, self.RUNS // 10)):
            least = -60 if i % 2 else 0  # few choose anybody here, or all do
            layer.ids.copy_(torch.randint(least, 16, layer.ids.shape, device="cuda", generator=self.generator))
            layer.x.normal_(generator=self.generator)
            graph.replay()
            call()
            rows = (layer.ids >= 0).sum(1).cumsum(0)
            lost = torch.zeros_like(rows, dtype=torch.bool)
            if int(rows[-1]) > capacity:  # the last rows of the last experts
                order = torch.where(layer.ids >= 0, layer.ids, 99).flatten().argsort(stable=True)
                lost[order[capacity : int(rows[-1])] // 4] = True
            same = (out.view(torch.int16) == wanted.view(torch.int16)).all(1)
            if not bool(torch.where(lost, out.isnan().all(1), same).all()):
                raise AssertionError(f"tokens of replay {i} differ, {int(lost.sum())} of which do not fit")
        return max(1, self.RUNS // 10)

    def small_ep(self):
        """Exactly and in places, with a workspace that is exactly as large as it must be: what the sanitizers run."""
        layer = self.layer_of(9, 3, 272, 128, 5)
        for capacity in (0, 27, 4):
            memory = self.places(layer, capacity) if capacity else None
            self.over_ranks(layer, torch.empty_like(layer.x), capacity, memory.t if memory else None)()
        for capacity in (27, 4):
            self.over_ranks(layer, torch.empty_like(layer.x), capacity, peers=self.peer_memory(layer))()
        torch.cuda.synchronize()
        return {"layers": 5}
