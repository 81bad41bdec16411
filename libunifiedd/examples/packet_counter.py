#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""packet_counter.py: counts the packets that a flow gives to this program.

    packet_counter.py PROGRAM FLOW [SOCKET]

It does what packet_counter.c does, through ctypes. The library is libunifiedd.so.1, or what UNIFIEDD_LIBRARY names.
"""

import ctypes
import os
import signal
import sys
import time
from ctypes import POINTER, Structure, c_char, c_char_p, c_int, c_int64, c_uint32, c_uint64, c_void_p

UFD_AGAIN = -1
UFD_RECEIVE = 1
BATCH = 64


class Error(Structure):
    _fields_ = [("result", c_int), ("reason", c_uint32), ("text", c_char * 512)]


class Message(Structure):
    _fields_ = [
        ("data", c_void_p), ("length", c_uint32), ("status", c_uint32), ("sequence", c_uint64), ("position", c_uint64),
        ("stamp", c_uint64), ("opening", c_uint32), ("generation", c_uint32), ("offset", c_uint64),
    ]


def load():
    """Loads the library and declares the functions that are used here."""
    ufd = ctypes.CDLL(os.environ.get("UNIFIEDD_LIBRARY", "libunifiedd.so.1"))
    for name, result, *args in (
        ("ufd_attach", c_void_p, c_char_p, c_char_p, c_uint64, POINTER(Error)),
        ("ufd_detach", None, c_void_p),
        ("ufd_open", c_void_p, c_void_p, c_char_p, c_uint32, c_uint32, POINTER(Error)),
        ("ufd_close", None, c_void_p),
        ("ufd_poll", c_int, c_void_p, POINTER(Message), c_int),
        ("ufd_release", c_int, c_void_p, POINTER(Message), c_int),
        ("ufd_wait", c_int, c_void_p, c_int64),
        ("ufd_why", None, c_void_p, POINTER(Error)),
        ("ufd_strerror", c_char_p, c_int),
    ):
        function = getattr(ufd, name)
        function.restype, function.argtypes = result, args
    return ufd


def count(ufd, port, stopped):
    """Counts until stopped() is true. Returns the result that ended it, or 0."""
    got = (Message * BATCH)()
    packets = size = lost = last = opening = 0
    turn = time.monotonic() + 1
    while not stopped():
        n = ufd.ufd_poll(port, got, BATCH)
        for m in got[: max(n, 0)]:
            # The bytes are ctypes.string_at(m.data, m.length), until ufd_release.
            if m.opening == opening and m.position > last + 1:
                lost += m.position - last - 1
            opening, last = m.opening, m.position
            packets += 1
            size += m.length
        if n > 0:
            ufd.ufd_release(port, got, n)
        left = turn - time.monotonic()
        if left <= 0:
            print(f"{packets} packets, {size} bytes, {lost} lost", flush=True)
            packets = size = lost = 0
            turn += 1
            continue
        if n > 0:
            continue
        n = ufd.ufd_wait(port, int(left * 1e9))  # attaches again if the daemon is gone
        if n < 0 and n != UFD_AGAIN:
            return n
    return 0


def main():
    if not 3 <= len(sys.argv) <= 4:
        sys.exit("usage: packet_counter.py PROGRAM FLOW [SOCKET]")
    signals = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda n, frame: signals.append(n))
    ufd, why = load(), Error()
    socket = sys.argv[3].encode() if len(sys.argv) > 3 else None
    client = ufd.ufd_attach(socket, sys.argv[1].encode(), 0, ctypes.byref(why))
    port = client and ufd.ufd_open(client, sys.argv[2].encode(), UFD_RECEIVE, 0, ctypes.byref(why))
    r = 0
    if port:
        r = count(ufd, port, lambda: signals)
        if r < 0:
            ufd.ufd_why(port, ctypes.byref(why))
            print(f"packet_counter: {ufd.ufd_strerror(r).decode()}: {why.text.decode()}", file=sys.stderr)
        ufd.ufd_close(port)
    else:
        print(f"packet_counter: {why.text.decode()}", file=sys.stderr)
    ufd.ufd_detach(client)
    sys.exit(0 if port and r == 0 else 1)


if __name__ == "__main__":
    main()
