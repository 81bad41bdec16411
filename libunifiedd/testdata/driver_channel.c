/* SPDX-License-Identifier: Apache-2.0 */
/* driver_channel: the driver's commands for channels. */
#define _POSIX_C_SOURCE 200809L
#include "driver.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ufd_channel *channel; /* the one that is open */

static void fail_channel(int result)
{
	ufd_error why = {0};

	if (result != UFD_AGAIN && result != UFD_INVALID)
		ufd_channel_why(channel, &why);
	fail(result, why.reason);
}

void close_channel(void)
{
	ufd_channel_close(channel);
	channel = NULL;
}

static void open_channel(const char *name, uint32_t role)
{
	ufd_error why = {0};

	ufd_channel_close(channel);
	channel = ufd_channel_open(client, name, role, &why);
	if (!channel)
		fail(why.result, why.reason);
	else if (role == UFD_FOLLOW)
		puts("following");
	else
		printf("opened %" PRIu64 "\n", ufd_channel_next(channel));
}

/* put writes n messages, or returns what is wrong. */
static int put(uint64_t n, uint32_t length, int wait)
{
	static uint8_t message[1 << 16];
	int r = 0;

	while (n > 0 && r == 0) {
		for (uint32_t i = 0; i < length; i++)
			message[i] = (uint8_t)(i + ufd_channel_next(channel));
		r = ufd_channel_write(channel, message, length, NULL);
		n -= r == 0;
		if (wait && (r == UFD_AGAIN || r == UFD_GONE || r == UFD_CLOSED))
			r = ufd_channel_wait(channel, UFD_FOREVER);
	}
	return r;
}

static void put_messages(uint64_t n, uint32_t length, int wait)
{
	uint64_t from = ufd_channel_next(channel);
	int r = put(n, length, wait);

	if (r < 0)
		fail_channel(r);
	else if (wait)
		printf("put %" PRIu64 " %" PRIu64 "\n", from, ufd_channel_next(channel) - 1);
	else
		printf("put %" PRIu64 "\n", from);
}

/* pause_channel waits with ufd_channel_wait, or every other time with its descriptor. */
static int pause_channel(int got, int64_t most)
{
	static unsigned turn;
	struct pollfd fd = {.fd = ufd_channel_fd(channel), .events = POLLIN};

	if (got < 0 || turn++ % 2)
		return ufd_channel_wait(channel, most);
	if (ufd_channel_arm(channel) == 0)
		poll(&fd, 1, (int)(most / 1000000));
	ufd_channel_disarm(channel);
	return 0;
}

static void get_messages(uint64_t n, int64_t ms)
{
	static uint8_t message[1 << 16];
	int64_t until = now() + ms * 1000000;
	uint64_t got = 0, sequence = 0;
	uint32_t length = 0;
	int r = 0;

	while (got < n && (r >= 0 || r == UFD_AGAIN)) {
		r = ufd_channel_read(channel, message, sizeof(message), &length, &sequence);
		for (uint32_t i = 0; r == 1 && i < length; i++) {
			if (message[i] != (uint8_t)(i + sequence)) {
				fprintf(stderr, "message %" PRIu64 " is damaged at byte %" PRIu32 "\n", sequence, i);
				exit(1);
			}
		}
		if (r == 1)
			got++;
		else if (now() >= until)
			break;
		else
			r = pause_channel(r, until - now());
	}
	if (r < 0 && r != UFD_AGAIN)
		fail_channel(r);
	else
		printf("got %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", got, sequence, ufd_channel_lost(channel));
}

int run_channel(const char *what, const char *a, uint64_t n, uint64_t x)
{
	int r;

	if (!strcmp(what, "writer") && client) {
		open_channel(a, UFD_WRITE);
	} else if (!strcmp(what, "follow") && client) {
		open_channel(a, UFD_FOLLOW);
	} else if (!channel) {
		return 0;
	} else if (!strcmp(what, "put")) {
		put_messages(n, (uint32_t)x, 1);
	} else if (!strcmp(what, "tryput")) {
		put_messages(1, (uint32_t)n, 0);
	} else if (!strcmp(what, "get")) {
		get_messages(n, (int64_t)x);
	} else if (!strcmp(what, "readers")) {
		if ((r = ufd_channel_readers(channel)) < 0)
			fail_channel(r);
		else
			printf("readers %d\n", r);
	} else if (!strcmp(what, "resume")) {
		struct pollfd fd = {.fd = ufd_channel_fd(channel), .events = POLLIN};
		if (ufd_channel_arm(channel) == 0) /* the word that it has ended is under way */
			poll(&fd, 1, 1000);
		ufd_channel_disarm(channel);
		if ((r = ufd_channel_resume(channel, UFD_FOREVER)) < 0)
			fail_channel(r);
		else
			puts("resumed");
	} else {
		return 0;
	}
	return 1;
}
