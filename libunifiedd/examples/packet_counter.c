/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packet_counter: counts the packets that a flow gives to this program.
 *
 *	packet_counter PROGRAM FLOW [SOCKET]
 *
 * Each second it prints the packets and bytes of that second, and how many packets of the flow it has lost: the gaps in the
 * packets' positions. It goes on when the daemon has been started again.
 *
 *	cc -o packet_counter packet_counter.c $(pkg-config --cflags --libs unifiedd)
 */
#include <unifiedd.h>

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

static volatile sig_atomic_t stopped;

static void stop(int number)
{
	(void)number;
	stopped = 1;
}

static int64_t now(void)
{
	struct timespec t;

	timespec_get(&t, TIME_UTC);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* count counts what flow gives until a signal comes. It returns the result that ended it, or 0. */
static int count(ufd_port *port)
{
	ufd_message got[64];
	uint64_t packets = 0, bytes = 0, lost = 0, last = 0;
	uint32_t opening = 0;
	int64_t second = 1000000000, next = now() + second;

	while (!stopped) {
		int n = ufd_poll(port, got, 64);
		for (int i = 0; i < n; i++) {
			if (got[i].opening == opening && got[i].position > last + 1)
				lost += got[i].position - last - 1;
			opening = got[i].opening;
			last = got[i].position;
			packets++;
			bytes += got[i].length; /* the bytes are at got[i].data */
		}
		if (n > 0)
			ufd_release(port, got, n);
		int64_t left = next - now();
		if (left <= 0) {
			printf("%" PRIu64 " packets, %" PRIu64 " bytes, %" PRIu64 " lost\n", packets, bytes, lost);
			fflush(stdout);
			packets = bytes = lost = 0;
			next += second;
			continue;
		}
		if (n > 0)
			continue;
		n = ufd_wait(port, left); /* attaches again if the daemon is gone */
		if (n < 0 && n != UFD_AGAIN)
			return n;
	}
	return 0;
}

int main(int argc, char **argv)
{
	ufd_error why;

	if (argc < 3 || argc > 4) {
		fprintf(stderr, "usage: packet_counter PROGRAM FLOW [SOCKET]\n");
		return 2;
	}
	signal(SIGINT, stop);
	signal(SIGTERM, stop);
	ufd_client *client = ufd_attach(argc > 3 ? argv[3] : NULL, argv[1], 0, &why);
	ufd_port *port = client ? ufd_open(client, argv[2], UFD_RECEIVE, 0, &why) : NULL;
	if (!port) {
		fprintf(stderr, "packet_counter: %s\n", why.text);
		ufd_detach(client);
		return 1;
	}
	int r = count(port);
	if (r < 0) {
		ufd_why(port, &why);
		fprintf(stderr, "packet_counter: %s: %s\n", ufd_strerror(r), why.text);
	}
	ufd_close(port);
	ufd_detach(client);
	return r < 0;
}
