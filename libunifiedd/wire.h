/* SPDX-License-Identifier: Apache-2.0 */
/* wire.h: what the daemon and a program must agree about. go test ./flows/attach/wire -run TestHeader -update writes it. */
#ifndef UNIFIEDD_WIRE_H
#define UNIFIEDD_WIRE_H

#include <stdint.h>

/* Messages of the socket. */
enum {
	VERSION = 1,
	HEADER_LEN = 8,
	MAX_NAME = 63, /* bytes of a name */
	NAME_LEN = 64, /* and in a message, where zeros follow */
	MAX_TEXT = 500, /* bytes of the daemon's text for people */
	MAX_MESSAGE = 516,
};

/* Kinds of messages. */
enum {
	HELLO = 1,
	WELCOME = 2,
	REFUSAL = 3,
	OPEN = 4,
	OPENED_PORT = 5,
	CLOSE = 6,
	END = 7,
	CLOSED_PORT = 8,
	MAPPED = 9,
};

/* Lengths of bodies. */
enum {
	HELLO_LEN = 80,
	WELCOME_LEN = 32,
	OPEN_LEN = 80,
	OPENED_LEN = 32,
	CLOSE_LEN = 4,
};

/* Roles besides enum ufd_role, and what the answer to them has in align. */
enum {
	LOOK = 6, /* the memory of a state */
	GIVE = 7, /* a connection of the program */
	ONCE = 1, /* nothing is submitted again */
};

/* The rings of a port, one behind the other. */
enum {
	RECEIVED = 0,
	RELEASED = 1,
	SUBMITTED = 2,
	DONE = 3,
	RINGS = 4,
	RING_MAGIC = 1196315253, /* "uRNG" */
	RING_ENTRIES_AT = 4,
	RING_HEAD_AT = 64,
	RING_TAIL_AT = 128,
	RING_ASLEEP_AT = 136,
	RING_LEN = 256, /* before the entries */
	RING_ENTRY_LEN = 64,
};

/* Channels. */
enum {
	CHANNEL_MAGIC = 1313358709, /* "uCHN" */
	SLOTS_AT = 4,
	SLOT_AT = 8,
	FLAGS_AT = 12,
	LAST_AT = 64,
	STALLS_AT = 128,
	NUMBERING_AT = 192,
	RING_HEADER = 4096, /* before the slots */
	SLOT_HEADER = 16,
	MIN_SLOT = 64,
	MAX_SLOT = 65536,
	PAGE_LEN = 4096, /* of a reader, and of the page of who is there */
	CURSOR_AT = 0, /* in a reader's page */
	LOST_AT = 8,
	SLEEPS_AT = 64,
	READER_STRIDE = 64, /* in the page of who is there */
	MAX_READERS = 16,
	SUMS = 1, /* the writer puts a checksum into each slot */
	UNORDERED = 2, /* bytes of slots arrive in any order: readers check the checksum */
};

/* States. */
enum {
	STATE_MAGIC = 1096045429, /* "uSTA" */
	HEAD_LEN = 4096,
	MARK_AT = 64,
	MARK_LEN = 16, /* position 8, entries 8 */
	OBJECTS = 1, /* kinds */
	KEYS = 2,
	WORDS = 3,
	OBJECT_HEADER = 16,
	PLACE_UNIT = 64, /* objects and words begin at multiples of it */
	WORD_LEN = 8,
	BUCKET_LEN = 512,
	BUCKET_HEADER = 16,
	PER_BUCKET = 4,
	ENTRY_LEN = 124,
	ENTRY_HEADER = 4,
	MAX_KEY_VALUE = 120, /* bytes of a key and its value together */
	MAX_ROOM = 1048576, /* bytes of an object */
	MAX_PLACES = 1073741824,
	TRIES = 100, /* looks at what is being written, before UFD_AGAIN */
	PUT = 1, /* operations of updates */
	DELETE = 2,
	UPDATE_HEADER = 16,
};

#define MAX_STATE_LEN UINT64_C(68719476736)
#define NO_PAYLOAD UINT64_C(4294967295)

#endif
