"""Many logits, many times: what is read too late is so where stores keep all loads of an SM waiting."""

import torch

from gpu_mqa import Mqa


class ManyLogits(Mqa):
    MANY, MANY_RUNS = 8192, 400  # queries and keys, calls

    def mqa_many(self):
        """The same bits each time, of rows and of pages, with and without -inf behind the windows."""
        rows = [self.timed_rows(heads, 128, self.MANY, self.MANY) for heads in (64, 32)]
        calls = [
            call
            for of_form in (*rows, self.timed_pages(64, self.MANY // 32, 1, self.MANY))
            for call in of_form.values()
        ]
        for call in calls:
            d = call.args[-1]
            d.zero_()
            call()
            wanted, others = d.clone(), torch.zeros((), dtype=torch.int64, device="cuda")
            for _ in range(self.MANY_RUNS):
                call()
                others += (d.view(torch.int32) != wanted.view(torch.int32)).sum()
            if others > 0:
                raise AssertionError(
                    f"{int(others)} logits of {self.MANY_RUNS} x {d.numel()} differ when repeated: {call}"
                )
        return {"calls": len(calls), "runs": self.MANY_RUNS}
