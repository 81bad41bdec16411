/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message.h: messages of the socket, which is of type SOCK_SEQPACKET: every message is one packet of 8 bytes, "uATT", version,
 * kind and the length of the body, and then the body, little-endian.
 */
#ifndef UNIFIEDD_MESSAGE_H
#define UNIFIEDD_MESSAGE_H

#include "internal.h"

/* message is a received message with its descriptors. */
struct message {
	uint8_t bytes[MAX_MESSAGE];
	uint8_t kind;
	const uint8_t *body;
	size_t length;
	int fds[MAX_FDS];
	unsigned n_fds;
};

static inline uint32_t get32(const uint8_t *b)
{
	return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static inline uint64_t get64(const uint8_t *b)
{
	return get32(b) | (uint64_t)get32(b + 4) << 32;
}

static inline void put32(uint8_t *b, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		b[i] = (uint8_t)(v >> 8 * i);
}

static inline void put64(uint8_t *b, uint64_t v)
{
	put32(b, (uint32_t)v);
	put32(b + 4, (uint32_t)(v >> 32));
}

/* ufdi_close_fds closes descriptors, of which some may be -1. */
void ufdi_close_fds(int *fds, unsigned n);

/* ufdi_send sends a message. It returns 0, or -1 with errno. It does not block. */
int ufdi_send(int fd, uint8_t kind, const uint8_t *body, size_t length);

/* ufdi_send_with is ufdi_send with a descriptor. */
int ufdi_send_with(int fd, uint8_t kind, const uint8_t *body, size_t length, int descriptor);

/* ufdi_receive reads a message. It returns 1, 0 if there is none now, or -1 if the connection has ended: errno says why. The
 * caller closes the descriptors. */
int ufdi_receive(int fd, struct message *m);

/* ufdi_refused fills why with a reason and a text of the daemon: 4 bytes, and the rest. */
void ufdi_refused(ufd_error *why, int result, const uint8_t *b, size_t length);

#endif
