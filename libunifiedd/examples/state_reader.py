#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""state_reader.py: prints an object or key of a state, each time when it has changed.

    state_reader.py PROGRAM STATE WHAT [SOCKET]

WHAT is the number of an object, or a key if the state has keys. Each line has a position of the state, and the payload or value as
it was there or later, or nothing if there is none. It looks a thousand times a second, and goes on when the daemon has been
started again.
"""

import sys
import time

import unifiedd


def watch(state, what):
    last = seen = None
    while True:
        at = state.position()
        if at != seen:
            seen = at
            value = state.get(what)
            if value != last:
                print(at[0], "" if value is None else value.decode(errors="backslashreplace"), flush=True)
            last = value
        time.sleep(0.001)


def main():
    if not 4 <= len(sys.argv) <= 5:
        sys.exit("usage: state_reader.py PROGRAM STATE WHAT [SOCKET]")
    try:
        with unifiedd.Client(sys.argv[1], *sys.argv[4:]) as client, unifiedd.State(client, sys.argv[2]) as state:
            watch(state, sys.argv[3].encode() if state.has_keys() else int(sys.argv[3]))
    except unifiedd.Failed as e:
        sys.exit(f"state_reader: {e}")
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
