/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log_writer: appends each line of standard input to the log of a flow, as one message.
 *
 *	log_writer PROGRAM FLOW [SOCKET [SESSION]]
 *
 * For each message it prints its sequence and its position in the log once the message is as safe as the flow promises. It goes
 * on when the daemon has been started again. A position of 0 means that the daemon ended before it told the position, and
 * that the message is in the log. Who runs it again with the same SESSION gets sequences that go on.
 *
 *	cc -o log_writer log_writer.c $(pkg-config --cflags --libs unifiedd)
 */
#define _POSIX_C_SOURCE 200809L
#include <unifiedd.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

static uint64_t done; /* receipts */

/* receipts prints the receipts that have come, and waits for one if wait. It returns how many there were, or a result. */
static int receipts(ufd_port *port, int wait)
{
	ufd_message got[64];
	int n = ufd_poll(port, got, 64);

	for (int i = 0; i < n; i++) {
		if (got[i].status != UFD_REASON_NONE)
			printf("%" PRIu64 " %s\n", got[i].sequence, ufd_reason(got[i].status));
		else
			printf("%" PRIu64 " %" PRIu64 "\n", got[i].sequence, got[i].position);
	}
	if (n > 0)
		done += (uint64_t)n;
	if (n > 0 || (n == 0 && !wait))
		return n;
	n = ufd_wait(port, UFD_FOREVER); /* attaches again if the daemon is gone */
	return n == UFD_AGAIN ? 0 : n;
}

/* append sends a line. It returns a negative result if that is impossible. */
static int append(ufd_port *port, const char *line, size_t length)
{
	uint32_t room;
	void *frame;

	while (!(frame = ufd_claim(port, &room))) {
		int r = receipts(port, 1);
		if (r < 0)
			return r;
	}
	if (length > room || length == 0) {
		fprintf(stderr, "log_writer: a line of %zu bytes is left out: a message has 1 to %" PRIu32 "\n", length, room);
		ufd_discard(port, frame);
		return 0;
	}
	memcpy(frame, line, length);
	return ufd_commit(port, frame, (uint32_t)length, NULL);
}

/* copy sends all lines, and waits until each has its receipt. */
static int copy(ufd_port *port)
{
	uint64_t first = ufd_next(port);
	char *line = NULL;
	size_t size = 0;
	ssize_t n;
	int r = 0;

	while (r >= 0 && (n = getline(&line, &size, stdin)) >= 0) {
		if (n > 0 && line[n - 1] == '\n')
			n--;
		r = append(port, line, (size_t)n);
		while (r >= 0 && (r = receipts(port, 0)) > 0)
			;
		if (r == UFD_GONE || r == UFD_CLOSED)
			r = 0; /* until no frame is free, lines can be appended */
	}
	free(line);
	while (r >= 0 && first + done < ufd_next(port))
		r = receipts(port, 1);
	return r;
}

int main(int argc, char **argv)
{
	ufd_error why;

	if (argc < 3 || argc > 5) {
		fprintf(stderr, "usage: log_writer PROGRAM FLOW [SOCKET [SESSION]]\n");
		return 2;
	}
	uint64_t session = argc > 4 ? strtoull(argv[4], NULL, 0) : 0;
	ufd_client *client = ufd_attach(argc > 3 ? argv[3] : NULL, argv[1], session, &why);
	ufd_port *port = client ? ufd_open(client, argv[2], UFD_SEND, 0, &why) : NULL;
	if (!port) {
		fprintf(stderr, "log_writer: %s\n", why.text);
		ufd_detach(client);
		return 1;
	}
	int r = copy(port);
	if (r < 0) {
		ufd_why(port, &why);
		fprintf(stderr, "log_writer: %s: %s\n", ufd_strerror(r), why.text);
	}
	ufd_close(port);
	ufd_detach(client);
	return r < 0;
}
