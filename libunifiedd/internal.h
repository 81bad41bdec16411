/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts share: link.c talks to the daemon over its socket, unifiedd.c and request.c pass frames through rings, channel.c
 * messages through the ring of a channel, state.c reads states, and given.c gives connections.
 */
#ifndef UNIFIEDD_INTERNAL_H
#define UNIFIEDD_INTERNAL_H

#include "unifiedd.h"
#include "wire.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum {
	MAX_ASKED = 64,	  /* ports that a program may have */
	MAX_EARLY = 16,
	MAX_ENTRIES = 1 << 20,
	MAX_FDS = 2 + 2 * MAX_READERS, /* of a message */
};

/* Bounds of time in nanoseconds. */
#define MEET_TIME INT64_C(15000000000) /* for an answer of the daemon */
#define LEAST_PAUSE INT64_C(10000000)  /* between two attempts */
#define MOST_PAUSE INT64_C(1000000000)
/* Another thread may have read the answer that this one polls the socket for. */
#define LOOK_TIME INT64_C(5000000)

/* file identifies a memfd. */
struct file {
	dev_t device;
	ino_t inode;
};

/* mapping is a file of the daemon that this program has mapped. */
struct mapping {
	void *at; /* NULL: none */
	size_t size;
};

/* memory is what the daemon shares with the program. A daemon passes the same memory over all connections of its run, and
 * then all use one mapping. The client's mutex guards refs; the rest does not change. */
struct memory {
	const uint8_t *in; /* NULL: none */
	uint8_t *out;	   /* NULL: none */
	uint64_t in_size, out_size;
	struct file in_file, out_file;
	uint32_t frame; /* size of a frame, a power of two */
	unsigned refs;
};

/* closed is a port that the daemon closed before it said that the port is open. */
struct closed {
	uint32_t port;
	ufd_error why;
};

/* link is one connection. The client's mutex guards everything but fd, which does not change, and alive. */
struct link {
	int fd;
	atomic_bool alive;
	struct memory *memory; /* NULL: the daemon has not answered the hello */
	int64_t since;	       /* when the hello was sent */
	unsigned refs;
	/* The daemon answers in the order of the questions. NULL: the port has been closed since. */
	struct side *asked[MAX_ASKED];
	unsigned first_asked, n_asked;
	struct closed early[MAX_EARLY]; /* the newest ones; port 0: none */
	unsigned next_early;
	ufd_error why; /* once it is not alive */
};

struct ufd_client {
	char socket[108];
	char name[NAME_LEN];
	uint64_t session;

	pthread_mutex_t mutex; /* guards what follows. Nobody waits for the daemon while holding it */
	struct link *link;     /* the newest connection; NULL: none yet */
	struct link *joining;  /* a connection whose hello has no answer; NULL: none */
	int64_t next, pause;   /* of the attempts to attach */
	ufd_error last;	       /* why the last attempt failed */
	struct side *ports;
};

/* answer is what the daemon has answered to the question for a port. */
enum answer { NO_ANSWER, OPENED, REFUSED };

/* opened is the daemon's answer that opens a port. */
struct opened {
	uint32_t number, entries, longest, align;
	uint64_t next, size;
	int fds[MAX_FDS]; /* of a flow: the rings, and to wake either side; -1: taken out */
	unsigned n_fds;
	bool closed; /* the daemon has closed the port meanwhile */
};

/* question is the part of a side that the client's mutex guards. The port's thread alone uses opened while answer is OPENED. */
struct question {
	struct link *asked; /* of the question without an answer, or of an answer that is not installed; NULL: neither */
	enum answer answer;
	struct opened opened;
	uint32_t number;     /* of the port in its link */
	int64_t next, pause; /* of the attempts to open */
	ufd_error why;	     /* see ufd_why */
	struct side *before, *after; /* in the client's list */
};

/* side is this program's side of a port: what it asks the daemon for, and what came of it. It begins a
 * ufd_port, ufd_channel, ufd_state or ufd_given. */
struct side {
	ufd_client *client;
	char name[NAME_LEN];
	uint32_t role, depth;
	int give;      /* of the role GIVE: the program's connection */
	uint64_t from; /* the sequence with which it goes on, if it was open before and sends; 0 */
	struct question q;
	struct link *link;  /* written by the port's thread under the mutex; NULL: it was never open */
	atomic_bool closed; /* by the daemon; written under the mutex */
};

/* entry is an entry of a ring, in this process. */
struct entry {
	uint64_t offset;
	uint32_t length, generation;
	uint64_t sequence, position, stamp;
	uint32_t status;
};

struct words;

/* ring is this side's view of a ring. The daemon may write anything into the shared words. */
struct ring {
	struct words *shared;
	uint64_t own; /* head of a producer, tail of a consumer */
};

/* State of a frame of the program's memory. */
enum state {
	NOT_OURS, /* the daemon has it, or another port */
	FREE,
	CLAIMED,
	SENT,
};

/* frame describes a frame of the memory that the program writes. */
struct frame {
	enum state state;
	uint32_t generation;
	uint32_t opening; /* of the port over which the daemon gave the generation */
};

/* space is memory that a port uses or has used. */
struct space {
	struct memory *memory;
	struct frame *frames; /* by number of the frame; NULL: the port receives */
	uint32_t n_claimed;
	struct space *older;
};

/* sent is a message without a receipt. */
struct sent {
	uint64_t sequence;
	struct space *space;
	uint32_t frame; /* number of its frame in space */
	uint32_t length;
	uint64_t stamp, decided; /* of what it answers, and when ufd_commit_answer was called; 0: it answers nothing */
};

struct ufd_port {
	struct side side;
	int poll; /* an epoll descriptor of wake and the link's socket */

	/* What follows is the port's thread's. */
	bool broken;	    /* the daemon broke the protocol */
	bool polled;	    /* poll has descriptors */
	bool once;	    /* the flow takes each message once: nothing is submitted again */
	int wake;
	void *rings_memory;
	size_t rings_size;
	uint32_t entries, mask;
	struct ring ring[RINGS];
	uint32_t opening;   /* counts how often the port was opened */
	int64_t looked;	    /* coarse time of the last look at the socket */
	struct space *space; /* of the present or last connection; older ones follow */
	uint64_t held;	    /* received over this opening and not released */

	uint64_t size;	 /* of what blocks are requested of; 0 */
	uint32_t align;	 /* of requests; 0 */
	uint32_t asked;	 /* requests of this opening without an answer */
	uint32_t room;	 /* of a frame: the longest message or request */
	uint32_t *free; /* numbers of free frames */
	uint32_t n_free, n_claimed;
	uint32_t given; /* frames that came over this opening without a receipt */
	struct sent *sent; /* a circular queue, oldest first */
	uint32_t sent_size, first_sent, n_sent;
	uint32_t submitted; /* of these, from the first on: in the ring, or done */
	uint64_t last;	    /* sequence of the last message or request */
	uint64_t done;	    /* messages before this one were done when the port was opened */
};

/* ufdi_now returns the time of the monotonic clock in nanoseconds. */
int64_t ufdi_now(void);

/* ufdi_wall returns the time of the system's clock in nanoseconds since 1970. */
uint64_t ufdi_wall(void);

/* ufdi_deadline returns when a time limit of a call is over; a negative one never is. */
int64_t ufdi_deadline(int64_t nanoseconds);

/* ufdi_sleep waits until one of two descriptors is readable, at most until a time; -1: none. It returns 0 if the time is up, -1
 * if a signal handler ran or ppoll failed, and otherwise the sum of 1 and 2: which ones are readable. */
int ufdi_sleep(int fd, int other, int64_t until);

/* ufdi_fail fills why, unless that is NULL. A system error's text follows from errno, which stays. It returns result. */
int ufdi_fail(ufd_error *why, int result, uint32_t reason, const char *format, ...) __attribute__((format(printf, 4, 5)));

/* ufdi_look reads the messages that have come over a side's connection. It returns false if another thread does so. */
bool ufdi_look(struct side *p);

/* ufdi_step makes the next step to open a side that is not open, and attaches again before if again. It does not block. It
 * returns 0 if the answer is OPENED; UFD_AGAIN: make the next step once *fd is readable, and *until at the latest; or an
 * error, which q.why explains. */
int ufdi_step(struct side *p, bool again, int *fd, int64_t *until);

/* ufdi_open makes steps for the first time, until the answer is OPENED: then it returns 0. It waits at most MEET_TIME. */
int ufdi_open(struct side *p);

/* ufdi_reopen makes steps, and attaches again, until the answer is OPENED. It returns UFD_AGAIN if the time is up. */
int ufdi_reopen(struct side *p, int64_t until);

/* ufdi_ask_back asks the daemon to close a side's port. The side is closed once the daemon has. */
void ufdi_ask_back(struct side *p);

/* ufdi_mapped tells the daemon that the ring of a channel is mapped. It returns 0, or -1 with errno. */
int ufdi_mapped(struct side *p);

/* ufdi_installed says that a side uses the connection over which it was opened. */
void ufdi_installed(struct side *p);

/* ufdi_rejected gives an opened port back to the daemon. The next attempt waits for a pause. */
void ufdi_rejected(struct side *p, const ufd_error *why);

/* ufdi_ended returns why nothing more comes, or 0. What came before is visible afterwards. */
int ufdi_ended(const struct side *p);

/* ufdi_why copies what was last wrong with a side. */
void ufdi_why(const struct side *p, ufd_error *why);

/* ufdi_check_ended is ufdi_ended, but reads the socket first if that was not done for some milliseconds. */
int ufdi_check_ended(struct side *p, int64_t *looked);

/* ufdi_tick reports, in turns of a few milliseconds, that it is time to look at the socket. */
bool ufdi_tick(int64_t *looked);

/* ufdi_watch has an epoll descriptor become readable with two others, of which wake may be -1. It returns 0, or -1 with errno. */
int ufdi_watch(int poll, int wake, int socket);

/* ufdi_drain takes what has woken the program off its socket. What is left wakes it again. */
void ufdi_drain(int wake);

/* ufdi_map maps a file that must have at least size bytes, with flags besides MAP_SHARED. The memory may be on huge pages, which
 * are mapped whole. It returns 0, or -1 with errno. ufdi_unmap ends that. */
int ufdi_map(struct mapping *m, int fd, uint64_t size, int protection, int flags);
void ufdi_unmap(struct mapping *m);

/* ufdi_crc continues a CRC-32C, which begins with 0. */
uint32_t ufdi_crc(uint32_t sum, const void *bytes, size_t n);

/* ufdi_enter adds a side to its client's. ufdi_leave removes it and ends it. */
void ufdi_enter(struct side *p);
void ufdi_leave(struct side *p);

/* ufdi_use and ufdi_unuse count the users of memory. */
void ufdi_use(ufd_client *c, struct memory *m);
void ufdi_unuse(ufd_client *c, struct memory *m);

#endif
