#!/usr/bin/env python3
"""A table of a record of gpu_ep.py: layers through memory that ranks reach beside those that exchange messages.

Exposed is what a layer takes beyond the experts of its rank alone, over what the messages alone take.
"""

import argparse
import json
import math
import pathlib

from ep_ranks import slowest_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=pathlib.Path)
    record = json.loads(parser.parse_args().record.read_text())
    print("| layer, ids | tokens | messages | memory | local | messages over memory | beyond local, us | exposed |")
    print("| --- " * 8 + "|")
    gains = []
    for case, seen in slowest_of(record).items():
        us = seen["us"]
        gains.append(us["capacity"] / us["peers"])
        beyond = us["peers"] - us["local"]
        times = " | ".join(f"{us[name]:.0f}" for name in ("capacity", "peers", "local"))
        shown = f"{gains[-1]:.2f} | {beyond:.0f} | {beyond / us['bare places']:.2f}"
        print(f"| {case.layer}, {case.kind} | {case.tokens} | {times} | {shown} |")
    if gains:
        print(f"geometric mean {math.exp(sum(map(math.log, gains)) / len(gains)):.3f}, least {min(gains):.3f}")


if __name__ == "__main__":
    main()
