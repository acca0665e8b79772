"""What a GPU draws, and its clock, while it replays one thing all the time."""

import subprocess
import time

SECONDS = 1.5  # of replays before the first look, as averages are of the last second
ASK = ("power.draw.average", "power.limit", "clocks.sm", "clocks_event_reasons.sw_power_cap")


def at_work(graph, looks: int = 3) -> dict:
    """Of a graph that is replayed all the time: microseconds, watts drawn and the limit of these, MHz, and how often
    the limit held clocks down."""
    import torch

    seen, replays = [], 0
    graph.replay()
    torch.cuda.synchronize()
    begin = time.perf_counter()

    def replay_until(done) -> None:
        nonlocal replays
        while not done():
            for _ in range(20):
                graph.replay()
            torch.cuda.synchronize()
            replays += 20

    replay_until(lambda: time.perf_counter() - begin > SECONDS)
    command = ["nvidia-smi", f"--query-gpu={','.join(ASK)}", "--format=csv,noheader,nounits"]
    for _ in range(looks):
        with subprocess.Popen([*command, f"--id={torch.cuda.current_device()}"], stdout=subprocess.PIPE) as program:
            replay_until(lambda p=program: p.poll() is not None)
            seen.append(program.communicate()[0].decode().strip().split(", "))
    us = (time.perf_counter() - begin) * 1e6 / replays
    drawn = sorted(float(look[0]) for look in seen)[looks // 2]
    clocks = sorted(int(look[2]) for look in seen)[looks // 2]
    held = sum(look[3] == "Active" for look in seen)
    return {"us": round(us, 1), "watts": drawn, "limit": float(seen[0][1]), "MHz": clocks, "held": f"{held} of {looks}"}
