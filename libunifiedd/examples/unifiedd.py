# SPDX-License-Identifier: Apache-2.0
"""unifiedd.py: what the examples use of libunifiedd, through ctypes.

The library is libunifiedd.so.1, or what UNIFIEDD_LIBRARY names. A Port, Channel or State belongs to one thread at a time. A wait
attaches and opens again if the daemon is gone; a negative result that is not UFD_AGAIN raises Failed.
"""

import ctypes
import os
from ctypes import POINTER, Structure, byref, c_char, c_char_p, c_int, c_int64, c_uint32, c_uint64, c_void_p

UFD_AGAIN, UFD_GONE, UFD_CLOSED = -1, -2, -3
UFD_RECEIVE, UFD_WRITE, UFD_FOLLOW = 1, 4, 5
UFD_REASON_BUSY = 5


class Error(Structure):
    _fields_ = [("result", c_int), ("reason", c_uint32), ("text", c_char * 512)]


class Message(Structure):
    """A received message. Its bytes are ctypes.string_at(m.data, m.length), until Port.release."""

    _fields_ = [
        ("data", c_void_p), ("length", c_uint32), ("status", c_uint32), ("sequence", c_uint64), ("position", c_uint64),
        ("stamp", c_uint64), ("opening", c_uint32), ("generation", c_uint32), ("offset", c_uint64),
    ]


class Failed(Exception):
    """The library has returned a result that is no success. reason is the daemon's, 0 if it gave none."""

    def __init__(self, text, reason):
        super().__init__(text)
        self.reason = reason


def load():
    """Loads the library and declares the functions that are used here."""
    library = ctypes.CDLL(os.environ.get("UNIFIEDD_LIBRARY", "libunifiedd.so.1"))
    error, length, number = POINTER(Error), POINTER(c_uint32), POINTER(c_uint64)
    for name, result, *args in (
        ("ufd_attach", c_void_p, c_char_p, c_char_p, c_uint64, error),
        ("ufd_detach", None, c_void_p),
        ("ufd_open", c_void_p, c_void_p, c_char_p, c_uint32, c_uint32, error),
        ("ufd_close", None, c_void_p),
        ("ufd_poll", c_int, c_void_p, POINTER(Message), c_int),
        ("ufd_release", c_int, c_void_p, POINTER(Message), c_int),
        ("ufd_wait", c_int, c_void_p, c_int64),
        ("ufd_why", None, c_void_p, error),
        ("ufd_channel_open", c_void_p, c_void_p, c_char_p, c_uint32, error),
        ("ufd_channel_close", None, c_void_p),
        ("ufd_channel_longest", c_uint32, c_void_p),
        ("ufd_channel_lost", c_uint64, c_void_p),
        ("ufd_channel_readers", c_int, c_void_p),
        ("ufd_channel_fd", c_int, c_void_p),
        ("ufd_channel_arm", c_int, c_void_p),
        ("ufd_channel_disarm", None, c_void_p),
        ("ufd_channel_write", c_int, c_void_p, c_char_p, c_uint32, number),
        ("ufd_channel_read", c_int, c_void_p, c_char_p, c_uint32, length, number),
        ("ufd_channel_wait", c_int, c_void_p, c_int64),
        ("ufd_channel_resume", c_int, c_void_p, c_int64),
        ("ufd_channel_why", None, c_void_p, error),
        ("ufd_state_open", c_void_p, c_void_p, c_char_p, error),
        ("ufd_state_close", None, c_void_p),
        ("ufd_state_objects", c_uint64, c_void_p),
        ("ufd_state_room", c_uint32, c_void_p),
        ("ufd_state_words", c_uint64, c_void_p),
        ("ufd_state_word", c_int, c_void_p, c_uint64, number),
        ("ufd_state_get", c_int, c_void_p, c_uint64, c_char_p, c_uint32, length, number),
        ("ufd_state_lookup", c_int, c_void_p, c_char_p, c_uint32, c_char_p, c_uint32, length),
        ("ufd_state_position", c_int, c_void_p, number, number),
        ("ufd_state_resume", c_int, c_void_p, c_int64),
        ("ufd_state_why", None, c_void_p, error),
        ("ufd_strerror", c_char_p, c_int),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, args
    return library


ufd = load()


class _Thing:
    """What a client, a port, a channel and a state have in common: a pointer, and how it is closed and asked for its error."""

    _close = _why = None

    def __init__(self, what, pointer, why):
        self.pointer = pointer
        if not pointer:
            raise Failed(f"{what}: {why.text.decode()}", why.reason)

    def close(self):
        if self.pointer:
            self._close(self.pointer)
        self.pointer = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def fail(self, result):
        """Raises Failed for a result."""
        why = Error()
        self._why(self.pointer, byref(why))
        raise Failed(f"{ufd.ufd_strerror(result).decode()}: {why.text.decode()}", why.reason)

    def waited(self, result):
        """Returns whether a wait was successful, False if its time is up."""
        if result < 0 and result != UFD_AGAIN:
            self.fail(result)
        return result == 0


class Client(_Thing):
    _close = ufd.ufd_detach

    def __init__(self, name, socket=None, session=0):
        why = Error()
        super().__init__("attach", ufd.ufd_attach(socket and socket.encode(), name.encode(), session, byref(why)), why)


class Port(_Thing):
    """A port that receives."""

    _close, _why = ufd.ufd_close, ufd.ufd_why

    def __init__(self, client, flow, batch=64):
        why = Error()
        super().__init__(flow, ufd.ufd_open(client.pointer, flow.encode(), UFD_RECEIVE, 0, byref(why)), why)
        self.got = (Message * batch)()

    def poll(self):
        """Returns messages. The program owns their bytes until release, which must come before the next poll."""
        return self.got[: max(ufd.ufd_poll(self.pointer, self.got, len(self.got)), 0)]

    def release(self, messages):
        ufd.ufd_release(self.pointer, self.got, len(messages))

    def wait(self, seconds):
        return self.waited(ufd.ufd_wait(self.pointer, int(seconds * 1e9)))


class Channel(_Thing):
    """A channel that this program writes or, with UFD_FOLLOW, reads."""

    _close, _why = ufd.ufd_channel_close, ufd.ufd_channel_why

    def __init__(self, client, name, role=UFD_FOLLOW):
        why = Error()
        super().__init__(name, ufd.ufd_channel_open(client.pointer, name.encode(), role, byref(why)), why)
        self._room = ctypes.create_string_buffer(ufd.ufd_channel_longest(self.pointer))
        self._length, self._sequence = c_uint32(), c_uint64()

    def write(self, message):
        """Writes a message and returns its sequence, or None if a reader for which this program waits has not read what lies there."""
        r = ufd.ufd_channel_write(self.pointer, message, len(message), byref(self._sequence))
        if r in (UFD_AGAIN, UFD_GONE, UFD_CLOSED):
            return None  # wait makes it go on
        if r < 0:
            self.fail(r)
        return self._sequence.value

    def read(self):
        """Returns the sequence and the bytes of the next message, or None if there is none now."""
        room = ufd.ufd_channel_longest(self.pointer)
        if room > len(self._room):  # the channel was opened again
            self._room = ctypes.create_string_buffer(room)
        r = ufd.ufd_channel_read(self.pointer, self._room, len(self._room), byref(self._length), byref(self._sequence))
        if r == 1:
            return self._sequence.value, self._room[: self._length.value]
        if r < 0 and r not in (UFD_GONE, UFD_CLOSED):
            self.fail(r)
        return None  # wait makes it go on

    def lost(self):
        return ufd.ufd_channel_lost(self.pointer)

    def over(self):
        """Returns whether the channel of a writer has ended: wait opens it again."""
        return ufd.ufd_channel_readers(self.pointer) < 0

    def fileno(self):
        """The descriptor for select, between arm, which returns whether there is something to do already, and disarm."""
        return ufd.ufd_channel_fd(self.pointer)

    def arm(self):
        return ufd.ufd_channel_arm(self.pointer) != 0

    def disarm(self):
        ufd.ufd_channel_disarm(self.pointer)

    def wait(self, seconds):
        """Waits for a message or for room. A reader that was too slow goes on with the next message."""
        r = ufd.ufd_channel_wait(self.pointer, int(seconds * 1e9))
        if r == UFD_CLOSED:
            r = ufd.ufd_channel_resume(self.pointer, int(seconds * 1e9))
        return self.waited(r)


class State(_Thing):
    """A state that this program reads."""

    _close, _why = ufd.ufd_state_close, ufd.ufd_state_why

    def __init__(self, client, name):
        why = Error()
        super().__init__(name, ufd.ufd_state_open(client.pointer, name.encode(), byref(why)), why)
        self._room = ctypes.create_string_buffer(ufd.ufd_state_room(self.pointer) + 1)
        self._length = c_uint32()

    def has_keys(self):
        return ufd.ufd_state_objects(self.pointer) == 0 and ufd.ufd_state_words(self.pointer) == 0

    def get(self, what):
        """Returns the payload of an object, an int, or the value of a key, bytes; None if there is none."""
        while True:
            if isinstance(what, int):
                r = ufd.ufd_state_get(self.pointer, what, self._room, len(self._room), byref(self._length), None)
            else:
                r = ufd.ufd_state_lookup(self.pointer, what, len(what), self._room, len(self._room), byref(self._length))
            if r >= 0:
                return self._room[: self._length.value] if r == 1 else None
            self._resume(r)

    def word(self, number):
        """Returns a word, as RDMA peers have left it."""
        value = c_uint64()
        while (r := ufd.ufd_state_word(self.pointer, number, byref(value))) < 0:
            self._resume(r)
        return value.value

    def position(self):
        """Returns the position of the last update and the run, which is another number when the state has begun empty again."""
        position, run = c_uint64(), c_uint64()
        while (r := ufd.ufd_state_position(self.pointer, byref(position), byref(run))) < 0:
            self._resume(r)
        return position.value, run.value

    def _resume(self, result):
        """Opens the state again after UFD_GONE. After UFD_AGAIN there is nothing to do but to look again."""
        if result == UFD_GONE:
            self.waited(ufd.ufd_state_resume(self.pointer, -1))
        elif result != UFD_AGAIN:
            self.fail(result)
