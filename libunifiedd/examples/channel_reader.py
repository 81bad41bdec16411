#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""channel_reader.py: prints the messages of a channel, or writes them.

    channel_reader.py PROGRAM CHANNEL [SOCKET]
    channel_reader.py --write PROGRAM CHANNEL [SOCKET]

A reader prints the sequence, the losses so far and the bytes of each message. A writer writes each line of standard input as one
message, waits for readers with the policy wait, and prints its sequence. Both go on when the daemon has been started again.
"""

import select
import sys
import time

import unifiedd


def open_channel(client, name, role):
    """Opens the channel. While no writer is there, or the last one has just left, the daemon is busy."""
    while True:
        try:
            return unifiedd.Channel(client, name, role)
        except unifiedd.Failed as e:
            if e.reason != unifiedd.UFD_REASON_BUSY:
                raise
        time.sleep(0.01)


def read(channel):
    while True:
        got = channel.read()
        if got is None:
            channel.wait(1)
        else:
            sequence, message = got
            print(sequence, channel.lost(), message.decode(errors="backslashreplace"), flush=True)


def write(channel):
    """Writes lines. Between them it notices if the daemon is gone: nobody would read what it writes then."""
    lines = open(0, "rb", buffering=0)
    while True:
        ready = [] if channel.arm() else select.select([lines, channel], [], [])[0]
        channel.disarm()
        if channel.over():
            channel.wait(1)
        elif lines in ready:
            line = lines.readline()
            if not line:
                return
            while (sequence := channel.write(line.rstrip(b"\n"))) is None:
                channel.wait(1)
            print(sequence, flush=True)


def main():
    args = sys.argv[1:]
    writes = args[:1] == ["--write"]
    args = args[writes:]
    if not 2 <= len(args) <= 3:
        sys.exit("usage: channel_reader.py [--write] PROGRAM CHANNEL [SOCKET]")
    try:
        with unifiedd.Client(args[0], *args[2:]) as client:
            with open_channel(client, args[1], unifiedd.UFD_WRITE if writes else unifiedd.UFD_FOLLOW) as channel:
                (write if writes else read)(channel)
    except unifiedd.Failed as e:
        sys.exit(f"channel_reader: {e}")
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
