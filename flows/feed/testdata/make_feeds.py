#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the feeds of this directory: python3 make_feeds.py writes moldudp64.feed and counter.feed.

It is written from the published format (Nasdaq, MoldUDP64 Protocol Specification 1.00) and shares nothing with the
package that reads it. Each line of a file is a packet, in hexadecimal behind the name of its line, or a pause.
"""
import random
import struct


def mold(session, sequence, messages, count=None):
    body = b"".join(struct.pack(">H", len(m)) + m for m in messages)
    return session.ljust(10).encode() + struct.pack(">QH", sequence, len(messages) if count is None else count) + body


def number(n, text):
    return b"FEED" + struct.pack("<I", n % 2**32) + text


def lines(rng, packets, out):
    """Send packets on two lines, b three behind a. Each loses, repeats and swaps some, but not the first two."""
    sent = {"a": [], "b": []}
    for name in sent:
        for i, p in enumerate(packets):
            if i > 1 and rng.random() < 0.08:
                continue
            sent[name] += [p] * (2 if rng.random() < 0.08 else 1)
        for i in range(4, len(sent[name]) - 1):
            if rng.random() < 0.1:
                sent[name][i], sent[name][i + 1] = sent[name][i + 1], sent[name][i]
    for i in range(max(len(sent["a"]), len(sent["b"]) + 3)):
        for name, at in (("a", i), ("b", i - 3)):
            if 0 <= at < len(sent[name]):
                out.append(f"{name} {sent[name][at].hex()}")
    out.append("pause 100ms")


def text(session, n):
    return f"{session} message {n}".encode() + b"." * (n % 7)


def make_mold(rng):
    out = []
    for session, first in (("NIGHT", 2**40), ("MORNING", 1)):
        n, packets = first, []
        while n < first + 60:
            count = rng.randint(1, 4)
            packets.append(mold(session, n, [text(session, n + i) for i in range(count)]))
            n += count
        packets.append(mold(session, n, []))  # a heartbeat
        lines(rng, packets, out)
        end = mold(session, n, [], 0xFFFF)
        out += [f"a {end.hex()}", f"b {end.hex()}"]
    late = mold("NIGHT", 2**40 + 3, [text("NIGHT", 2**40 + 3)])
    good = mold("MORNING", 100, [b"x", b"yz"])
    for bad in (late, good[:19], good[:-1], good + b"\0", good[:18] + b"\0\3" + good[20:], good[:20] + b"\xff\xff" + good[22:],
                mold("MORNING", 2**64 - 1, [b"x"]), mold("MORNING", 2**50, [b"x"])):
        out.append(f"b {bad.hex()}")
    return out


def make_counter(rng):
    out = []
    for session, first in (("NIGHT", 2**32 - 20), ("MORNING", 1_000_000_000)):  # the first one begins again at 0
        lines(rng, [number(first + i, text(session, first + i)) for i in range(60)], out)
    for bad in (number(7, b"late"), number(2_000_000_000, b"far"), b"FEED\1\2\3", number(3_000_000_000, b"far")):
        out.append(f"b {bad.hex()}")
    return out


for name, make in (("moldudp64", make_mold), ("counter", make_counter)):
    with open(f"{name}.feed", "w", encoding="ascii") as f:
        f.write("\n".join(make(random.Random(name))) + "\n")
