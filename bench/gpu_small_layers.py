"""Small layers of experts that take each of their kernels: what the sanitizers run."""

import torch

from gpu_layer import Layers
from gpu_library import AS_CONTEXT, FAST, OFF, ON

# Tokens of one choice, hidden, intermediate, experts: each has another one of the kernels whose rows the activation
# awaits, on an H200 and on an H100.
AWAITED = (
    (512, 1152, 128, 1),
    (512, 1152, 512, 2),
    (512, 1152, 768, 8),
    (512, 1152, 1024, 3),
    (512, 1152, 1408, 3),
    (512, 1280, 384, 8),
    (600, 1152, 384, 2),
    (700, 1152, 1280, 6),
    (700, 1152, 1536, 2),
    (700, 1152, 1536, 3),
    (1024, 1152, 1280, 3),
    (2048, 1152, 1280, 6),
)


class SmallLayers(Layers):
    def small_moe(self):
        """Each way, with a workspace that is exactly as large as it must be: a sanitizer may watch."""
        shapes = ((9, 272, 128), (90, 272, 128), (9, 8208, 272))  # few choices take each kernel that counts them
        for fused, (tokens, hidden, pairs) in ((ON, shapes[0]), *((OFF, shape) for shape in shapes)):
            layer = self.layer_of(tokens, 3, hidden, pairs, 5, fused=fused, weights_first=int(tokens == 9))
            layer.run(self.tested, numerics=FAST)
            if fused == OFF:
                for dtype in (torch.float32, torch.bfloat16):
                    layer.with_biases(self.generator, dtype).run(self.tested, numerics=FAST, fused=AS_CONTEXT)
        for tokens in (40, 200):  # of one choice, whose sums the second product stores
            self.layer_of(tokens, 1, 272, 128, 5).run(self.tested, numerics=FAST)
        for tokens, hidden, pairs, experts in AWAITED:
            self.layer_of(tokens, 1, hidden, pairs, experts, fused=OFF).run(self.tested, numerics=FAST)
        return {"layers": 3 + 3 * len(shapes) + len(AWAITED)}
