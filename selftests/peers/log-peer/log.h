/* SPDX-License-Identifier: Apache-2.0 */
/* What log-server and log-client say to each other, what the server writes, and how both end. */
#ifndef LOG_H
#define LOG_H

#include <errno.h>
#include <nmmintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A record over TCP: this, and its bytes. */
struct record {
	uint32_t length;
	uint32_t checksum; /* CRC-32C of the bytes */
};

/* The answer: how many records of the connection are acknowledged, and where the last of them is in the log. */
struct answer {
	uint64_t count;
	uint64_t position;
};

/* A record in the file: this, and its bytes. Records lie one behind the other; a length of 0 ends what one write has, and the
 * next record begins at the next multiple of BLOCK. */
struct entry {
	uint32_t length;
	uint32_t checksum; /* of the bytes */
	uint64_t position; /* 1 for the first record */
	uint32_t guard;	   /* CRC-32C of what is above */
};

enum {
	LONGEST = 1 << 16, /* bytes of a record, at most */
	MOST = 1024,	   /* connections */
	BLOCK = 4096,
};

static inline void die(const char *step, int error)
{
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, step, strerror(error));
	exit(1);
}

static inline unsigned long number(const char *text, const char *what, unsigned long most)
{
	char *end;
	errno = 0;
	unsigned long n = strtoul(text, &end, 10);

	if (errno || end == text || *end || n > most) {
		fprintf(stderr, "%s: %s %s: want a number up to %lu\n", program_invocation_short_name, what, text, most);
		exit(2);
	}
	return n;
}

/* checksum is CRC-32C, by the processor's instruction. */
static inline uint32_t checksum(const void *bytes, size_t length)
{
	const char *p = bytes;
	uint64_t c = 0xffffffff, word;

	for (; length >= 8; p += 8, length -= 8) {
		memcpy(&word, p, 8);
		c = _mm_crc32_u64(c, word);
	}
	for (; length; p++, length--)
		c = _mm_crc32_u8((uint32_t)c, (uint8_t)*p);
	return (uint32_t)c ^ 0xffffffff;
}

#endif
