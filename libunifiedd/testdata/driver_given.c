/* SPDX-License-Identifier: Apache-2.0 */
/* driver_given.c: the driver's commands for connections that the program gives. */
#define _POSIX_C_SOURCE 200809L
#include "driver.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int connection = -1;
static ufd_given *given;

static void print_given(int r)
{
	ufd_error why = {0};

	ufd_given_why(given, &why);
	fail(r, why.reason);
}

static void connect_to(const char *host, uint64_t port)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

	if (connection >= 0)
		close(connection);
	connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (inet_pton(AF_INET, host, &to.sin_addr) != 1 || connect(connection, (struct sockaddr *)&to, sizeof(to))) {
		fail(UFD_SYSTEM, UFD_REASON_NONE);
		return;
	}
	puts("connected");
}

static void give(const char *flow)
{
	ufd_error why = {0};
	ufd_given *g = ufd_give(client, flow, connection, &why);

	if (!g) {
		fail(why.result, why.reason);
		return;
	}
	given = g;
	puts("given");
}

/* hear reads n bytes that the exchange sends. */
static void hear(uint64_t n)
{
	uint8_t b[4096];
	uint32_t sum = 0, length;
	uint64_t left = n;
	int64_t until = now() + INT64_C(20000000000);

	while (left > 0 && now() < until) {
		uint32_t most = left < sizeof(b) ? (uint32_t)left : (uint32_t)sizeof(b);
		ssize_t plain = given ? 0 : recv(connection, b, most, MSG_DONTWAIT);
		int r = given ? ufd_given_read(given, b, most, &length) : plain > 0;
		if (!given && plain > 0)
			length = (uint32_t)plain;
		if (r < 0 || (r == 1 && length == 0))
			break;
		if (r == 0) {
			struct pollfd fd = {.fd = connection, .events = POLLIN};
			poll(&fd, 1, 100);
			continue;
		}
		for (uint32_t i = 0; i < length; i++)
			sum += b[i];
		left -= length;
	}
	printf("heard %" PRIu64 " %" PRIu32 "\n", n - left, sum);
}

static void take_back(void)
{
	int r = ufd_given_end(given);

	given = NULL;
	if (r < 0)
		fail(r, UFD_REASON_NONE);
	else
		puts("back");
}

void close_given(void)
{
	ufd_given_end(given);
	given = NULL;
	if (connection >= 0)
		close(connection);
	connection = -1;
}

int run_given(const char *what, const char *a, uint64_t n, uint64_t x)
{
	if (!strcmp(what, "connect")) {
		connect_to(a, x);
	} else if (!strcmp(what, "say") && connection >= 0) {
		if (send(connection, a, strlen(a), MSG_NOSIGNAL) == (ssize_t)strlen(a))
			puts("said");
		else
			fail(UFD_SYSTEM, UFD_REASON_NONE);
	} else if (!strcmp(what, "hear") && connection >= 0) {
		hear(n);
	} else if (!strcmp(what, "give") && client) {
		give(a);
	} else if (!strcmp(what, "check") && given) {
		int r = ufd_given_check(given);
		if (r < 0)
			print_given(r);
		else
			puts("in use");
	} else if (!strcmp(what, "takeback") && given) {
		take_back();
	} else {
		return 0;
	}
	return 1;
}
