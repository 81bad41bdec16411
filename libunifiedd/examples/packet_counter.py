#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""packet_counter.py: counts the packets that a flow gives to this program.

    packet_counter.py PROGRAM FLOW [SOCKET]

It does what packet_counter.c does.
"""

import signal
import sys
import time

import unifiedd


def count(port, stopped):
    """Counts until stopped() is true."""
    packets = size = lost = last = opening = 0
    turn = time.monotonic() + 1
    while not stopped():
        got = port.poll()
        for m in got:
            # The bytes are ctypes.string_at(m.data, m.length), until release.
            if m.opening == opening and m.position > last + 1:
                lost += m.position - last - 1
            opening, last = m.opening, m.position
            packets += 1
            size += m.length
        if got:
            port.release(got)
        left = turn - time.monotonic()
        if left <= 0:
            print(f"{packets} packets, {size} bytes, {lost} lost", flush=True)
            packets = size = lost = 0
            turn += 1
        elif not got:
            port.wait(left)


def main():
    if not 3 <= len(sys.argv) <= 4:
        sys.exit("usage: packet_counter.py PROGRAM FLOW [SOCKET]")
    signals = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda n, frame: signals.append(n))
    try:
        with unifiedd.Client(sys.argv[1], *sys.argv[3:]) as client, unifiedd.Port(client, sys.argv[2]) as port:
            count(port, lambda: signals)
    except unifiedd.Failed as e:
        sys.exit(f"packet_counter: {e}")


if __name__ == "__main__":
    main()
