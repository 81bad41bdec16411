/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unifiedd.h: programs that attach to a unifiedd daemon on the same host.
 *
 * A client meets the daemon at its socket and opens ports of flows. A port that receives gets packets or messages in memory
 * that the daemon or a device has written. A port that sends has frames of memory that the daemon reads, and gets a receipt
 * for each message. A port that requests asks for blocks of a file or device, which the disk reads into memory that the program
 * sees. No call of a port copies a payload. Claiming, committing, polling and releasing make system calls only to wake a
 * daemon that sleeps, and every few milliseconds to notice that it has ended.
 *
 * Results. A function that returns int returns 0 or a count, or a negative result of enum ufd_result. After UFD_SYSTEM errno
 * says what failed; EPROTO means that the daemon broke the protocol.
 *
 * A channel carries messages from one program to others without the daemon: the writer writes each once, into a ring that all
 * readers map. A state is memory that the daemon writes, as messages of a flow tell it, and that any number of programs read.
 *
 * A program may also give a TCP connection of its own to a flow: the daemon sends orders on it, and the program reads.
 *
 * Threads. A port, channel, state or given connection belongs to one thread at a time. Different ones of one client may belong to different threads,
 * and any thread may open them and call ufd_session. The library starts no thread and installs no signal handler.
 *
 * Memory. Only functions that attach, open or open again allocate memory.
 *
 * When the daemon ends. What the program has received or claimed stays mapped. ufd_poll returns what came before, and then
 * UFD_GONE. ufd_wait attaches again, opens the port anew and sends again what was not done: the flow takes each message of
 * a session once. A flow to an exchange does not know what an earlier daemon has sent: of its messages nothing is sent again,
 * and those without a receipt get one with UFD_REASON_NOT_KNOWN. Pointers of the earlier connection stay valid until the daemon has ended once more. If a reload of the
 * daemon closes only the port, ufd_poll returns UFD_CLOSED, and ufd_wait opens the port anew.
 *
 * All times are nanoseconds, all lengths bytes.
 */
#ifndef UNIFIEDD_H
#define UNIFIEDD_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define UFD_API __attribute__((visibility("default")))
#else
#define UFD_API
#endif

/* UFD_DEFAULT_SOCKET is where a daemon listens for programs unless its configuration says otherwise. */
#define UFD_DEFAULT_SOCKET "/run/unifiedd/attach.sock"

/* UFD_FOREVER is a time limit of ufd_wait: there is none. */
#define UFD_FOREVER ((int64_t)-1)

/* ufd_result is what a function returns instead of a count. */
enum ufd_result {
	UFD_AGAIN = -1,	  /* there is nothing now, or the time is up */
	UFD_GONE = -2,	  /* the daemon has ended, or has ended the connection: ufd_wait attaches again */
	UFD_CLOSED = -3,  /* the daemon has closed the port: ufd_wait opens it again */
	UFD_REFUSED = -4, /* the daemon refuses, and another attempt would be in vain; see the reason */
	UFD_INVALID = -5, /* an argument is wrong */
	UFD_SYSTEM = -6,  /* a system call failed: see errno */
	UFD_SHORT = -7,	  /* the memory of the caller is too short */
};

/* ufd_role is what a port is for. */
enum ufd_role {
	UFD_RECEIVE = 1, /* from the flow to the program */
	UFD_SEND = 2,	 /* from the program to the flow */
	UFD_REQUEST = 3, /* requests for blocks, and the answers */
	UFD_WRITE = 4,	 /* messages of a channel, to its readers */
	UFD_FOLLOW = 5,	 /* messages of a channel, from its writer */
};

/* ufd_refusal is the reason of the daemon for a refusal, an end or a message's status. Later releases may add reasons. */
enum ufd_refusal {
	UFD_REASON_NONE = 0,			/* nothing is wrong */
	UFD_REASON_BAD_VERSION = 1,		/* the message is of another version of the protocol */
	UFD_REASON_BAD_MESSAGE = 2,		/* the message is not one that is expected here */
	UFD_REASON_BAD_NAME = 3,		/* no program of that name may attach */
	UFD_REASON_NOT_PERMITTED = 4,		/* this user may not attach under that name */
	UFD_REASON_BUSY = 5,			/* the name or the flow is in use */
	UFD_REASON_NO_SUCH_FLOW = 6,		/* no running flow of that name is for this program */
	UFD_REASON_BAD_DESCRIPTOR = 7,		/* an entry names memory that the program does not have; or a connection does not fit */
	UFD_REASON_BAD_GENERATION = 8,		/* an entry names a frame that has changed hands since */
	UFD_REASON_BAD_INDEX = 9,		/* an index of a ring is ahead by more than the ring has */
	UFD_REASON_BAD_SEQUENCE = 10,		/* a message's sequence does not follow the last one's */
	UFD_REASON_OVER_QUOTA = 11,		/* the program asks for more than it may have */
	UFD_REASON_TOO_SLOW = 12,		/* the program does not take what comes for it */
	UFD_REASON_CLOSING = 13,		/* the flow or the daemon ends */
	UFD_REASON_GONE = 14,			/* the other side has ended */
	UFD_REASON_TOO_LONG = 15,		/* the message is longer than the flow takes */
	UFD_REASON_NOT_DONE = 16,		/* the request was not done */
	UFD_REASON_OVER_LIMIT = 17,		/* the message breaks a limit of the flow */
	UFD_REASON_STOPPED = 18,		/* the flow is told to let no message leave */
	UFD_REASON_NOT_KNOWN = 19,		/* the port has ended before the receipt: the message may have left, and is not sent again */
};

typedef struct ufd_client ufd_client;
typedef struct ufd_port ufd_port;
typedef struct ufd_channel ufd_channel;
typedef struct ufd_state ufd_state;
typedef struct ufd_given ufd_given;

/* ufd_error says what is wrong. The caller owns it, and a function that succeeds does not change it. */
typedef struct ufd_error {
	int result;	 /* of enum ufd_result */
	uint32_t reason; /* of enum ufd_refusal; UFD_REASON_NONE unless the daemon gave one */
	char text[512];	 /* for people: ends with a zero */
} ufd_error;

/* ufd_message is a packet or message that a port received, the receipt of a message that it sent, or the answer to a request. */
typedef struct ufd_message {
	const void *data;  /* received: the bytes, which can only be read. Receipt, request that was not done: NULL */
	uint32_t length;   /* received: of the bytes */
	uint32_t status;   /* UFD_REASON_NONE; receipt: why the message was not taken; answer: why the request was not done */
	uint64_t sequence; /* of a message or request, as ufd_commit or ufd_request returned it; of a packet: 0 */
	uint64_t position; /* received: counts those of the flow from 1 on, so a gap means a loss. Receipt: in the flow's log;
			    * 0: there is none, or the receipt was lost with the daemon. Answer: the request's offset */
	uint64_t stamp;	   /* received: when it arrived, nanoseconds since 1970 */
	uint32_t opening;  /* how often the port had been opened: a flow that begins anew may count positions from 1 again */

	uint32_t generation; /* for ufd_release, as offset is */
	uint64_t offset;
} ufd_message;

/*
 * ufd_attach attaches to the daemon that listens at socket, NULL: UFD_DEFAULT_SOCKET. name is the program's in the daemon's
 * configuration, and has 1 to 63 bytes. session identifies the messages of the program: a flow takes each sequence of a
 * session once. A program that keeps it over its own restarts goes on where the flow's log ends for it. 0: a random one.
 *
 * It waits at most 15 seconds. It returns NULL and fills why, unless that is NULL. The caller calls ufd_detach in the end. One
 * process at a time has a name: for some milliseconds after the last one has detached or ended, the reason may be busy.
 */
UFD_API ufd_client *ufd_attach(const char *socket, const char *name, uint64_t session, ufd_error *why);

/*
 * ufd_detach closes the ports that are still open, ends the connection and frees the client. What was received and not
 * released, and what was not sent, is the daemon's again. No thread may use the client or its ports any more. NULL: nothing.
 */
UFD_API void ufd_detach(ufd_client *client);

/* ufd_session returns the session of the client's messages. */
UFD_API uint64_t ufd_session(const ufd_client *client);

/*
 * ufd_open opens a port of a flow, whose name has 1 to 63 bytes. role is UFD_RECEIVE, UFD_SEND or UFD_REQUEST. depth is how many
 * messages or requests the program may hold, or have under way, at once; 0: as many as the flow allows. The daemon may allow more than depth.
 *
 * It waits at most 15 seconds. It returns NULL and fills why, unless that is NULL. It does not attach again: why says
 * UFD_GONE. The caller calls ufd_close in the end.
 */
UFD_API ufd_port *ufd_open(ufd_client *client, const char *flow, uint32_t role, uint32_t depth, ufd_error *why);

/*
 * ufd_close closes a port and frees it. What was received and not released, and what was not sent, is the daemon's again:
 * the program must not use it. Messages without a receipt may or may not be taken. It does not wait. NULL: nothing.
 */
UFD_API void ufd_close(ufd_port *port);

/*
 * ufd_claim returns a frame to fill, and in room, unless that is NULL, how many bytes it has: the longest message of the
 * flow. The program owns the frame until ufd_commit or ufd_discard. NULL: no frame is free, and ufd_poll gets frames back
 * together with receipts. A frame can be filled while the daemon is gone.
 */
UFD_API void *ufd_claim(ufd_port *port, uint32_t *room);

/* ufd_discard gives a claimed frame back that is not sent. */
UFD_API void ufd_discard(ufd_port *port, void *frame);

/*
 * ufd_commit sends the first length bytes of a claimed frame, 1 to room of them, and returns the message's sequence in
 * sequence, unless that is NULL. The library owns the frame then, and nothing may change it. A frame that was claimed before
 * the daemon ended can be sent, too. It returns 0, or UFD_INVALID if the frame is not claimed or the length is wrong;
 * in the second case the frame is still claimed.
 */
UFD_API int ufd_commit(ufd_port *port, void *frame, uint32_t length, uint64_t *sequence);

/*
 * ufd_commit_answer is ufd_commit of a message that answers a packet or message, whose stamp it is given. A flow to an
 * exchange measures from then, and from this call, until the order leaves.
 */
UFD_API int ufd_commit_answer(ufd_port *port, void *frame, uint32_t length, uint64_t stamp, uint64_t *sequence);

/*
 * ufd_poll fills messages with what has come, at most most: packets or messages of a port that receives, receipts of a port
 * that sends, in the order of ufd_commit, and answers of a port that requests, as the disk gives them. It returns how many, 0 if there are none now. It never blocks. The program owns
 * received bytes until ufd_release. If nothing is left, it returns UFD_GONE, UFD_CLOSED or UFD_SYSTEM.
 */
UFD_API int ufd_poll(ufd_port *port, ufd_message *messages, int most);

/*
 * ufd_release gives n received packets or messages back, in any order. Those of an earlier connection are the daemon's
 * already; answers without data are ignored. It returns 0, or UFD_INVALID and gives none back if that are more than the program holds. A message must be
 * released once: the daemon ends the connection of a program that does it twice.
 */
UFD_API int ufd_release(ufd_port *port, const ufd_message *messages, int n);

/*
 * ufd_request asks for length bytes from an offset of the file or device that a flow serves, both multiples of ufd_align, and
 * returns in sequence, unless that is NULL, the number of the request: they count from 1 on, and begin with 1 again when the port
 * is opened anew. It never blocks. What the file does not have is refused by the answer. It returns 0; UFD_AGAIN while the
 * port has as many requests without an answer as it can; UFD_GONE or UFD_CLOSED: ufd_wait opens it again, and requests without
 * an answer are forgotten; UFD_INVALID; or UFD_SYSTEM.
 */
UFD_API int ufd_request(ufd_port *port, uint64_t offset, uint32_t length, uint64_t *sequence);

/* ufd_size returns the size of the file or device, ufd_align what offsets and lengths of requests are multiples of. 0: the port
 * requests nothing. ufd_longest returns the length of the longest request or message that is sent. 0: the port receives. */
UFD_API uint64_t ufd_size(const ufd_port *port);
UFD_API uint32_t ufd_align(const ufd_port *port);
UFD_API uint32_t ufd_longest(const ufd_port *port);

/*
 * ufd_wait waits until ufd_poll has something to return, at most for a time; UFD_FOREVER: without limit; 0: not at all. If
 * the daemon is gone or has closed the port, it attaches and opens again, with pauses from 10 ms, doubling, to 1 s between
 * attempts, and sends again what was not done, except of a flow to an exchange. Messages that the flow turns out to have get receipts with position 0.
 *
 * It returns 0 if something has come or the port is open again, UFD_AGAIN if the time is up or a signal handler ran,
 * UFD_REFUSED if the program cannot go on with this port, and UFD_SYSTEM. ufd_why says more.
 */
UFD_API int ufd_wait(ufd_port *port, int64_t nanoseconds);

/*
 * ufd_fd returns a descriptor for poll, epoll or select: it becomes readable when something comes for the port or the
 * connection ends. It stays the same until ufd_close, which closes it. The program must not read it. To wait:
 *
 *	if (ufd_arm(port) == 0)
 *		poll(the descriptor);
 *	ufd_disarm(port);
 *	ufd_poll(port, ...);
 *
 * Once ufd_poll has returned UFD_GONE or UFD_CLOSED, the program calls ufd_wait, with 0 if it must not block, from time to
 * time until that returns 0: the descriptor does not become readable when a daemon is back.
 */
UFD_API int ufd_fd(const ufd_port *port);

/* ufd_arm says that the program is about to poll the descriptor. It returns 1 if something has come meanwhile, 0 if not. */
UFD_API int ufd_arm(ufd_port *port);

/* ufd_disarm ends ufd_arm. */
UFD_API void ufd_disarm(ufd_port *port);

/* ufd_next returns the sequence of the next message of a port that sends, or request. Messages of the session before it have
 * been sent, or were done before the port was opened. For requests it is 1 again once ufd_wait has opened the port anew: those
 * without an answer are to be made again. 0: the port receives. */
UFD_API uint64_t ufd_next(const ufd_port *port);

/* ufd_why says why the daemon last ended the connection, closed the port or refused to go on with it, or why the last
 * attempt to attach failed. result is 0 if none of this has happened. */
UFD_API void ufd_why(const ufd_port *port, ufd_error *why);

/*
 * ufd_channel_open opens a channel, whose name has 1 to 63 bytes. With the role UFD_WRITE the program writes messages; one
 * program at a time does. With UFD_FOLLOW it reads them, from the next one on; the reason is busy while no writer is there.
 *
 * It waits at most 15 seconds. It returns NULL and fills why, unless that is NULL. It does not attach again: why says
 * UFD_GONE. The caller calls ufd_channel_close in the end.
 */
UFD_API ufd_channel *ufd_channel_open(ufd_client *client, const char *channel, uint32_t role, ufd_error *why);

/* ufd_channel_close closes a channel and frees it. Readers still read what its writer has written. NULL: nothing. */
UFD_API void ufd_channel_close(ufd_channel *channel);

/* ufd_channel_longest returns the length of the longest message of the channel. */
UFD_API uint32_t ufd_channel_longest(const ufd_channel *channel);

/* ufd_channel_next returns the sequence that the program writes or reads next. Sequences begin with 1. */
UFD_API uint64_t ufd_channel_next(const ufd_channel *channel);

/*
 * ufd_channel_write writes a message of 0 to ufd_channel_longest bytes, which all readers find at once, and returns its
 * sequence in sequence, unless that is NULL. It never blocks. It returns 0; UFD_AGAIN if a reader for which the program waits
 * has not read what lies there; then UFD_GONE or UFD_CLOSED instead if the daemon does not say any more which readers have
 * ended; or UFD_INVALID. A program that waits for no reader goes on to write while the daemon is gone, and learns of that
 * from ufd_channel_readers.
 */
UFD_API int ufd_channel_write(ufd_channel *channel, const void *message, uint32_t length, uint64_t *sequence);

/* ufd_channel_readers returns how many readers are there now; UFD_GONE or UFD_CLOSED: nobody says so, and the program should
 * call ufd_channel_wait or ufd_channel_resume. UFD_INVALID: the program reads. */
UFD_API int ufd_channel_readers(ufd_channel *channel);

/*
 * ufd_channel_read copies the next message into to, which has room for at least ufd_channel_longest bytes, and its length and
 * sequence, unless sequence is NULL. It never blocks. The sequence goes up by one with each message, and by more after
 * messages that the writer has replaced before they were read: those are lost, and counted.
 *
 * It returns 1, or 0 if there is no message now. Once all that was there is read, it returns UFD_GONE if the daemon has ended;
 * UFD_CLOSED if the writer has left, if its sequences begin again or, as ufd_channel_why says, the reader was too slow;
 * UFD_INVALID; or UFD_SYSTEM with EPROTO if the writer broke the rules of the ring.
 */
UFD_API int ufd_channel_read(ufd_channel *channel, void *to, uint32_t room, uint32_t *length, uint64_t *sequence);

/* ufd_channel_lost returns how many messages this reader has lost: replaced before they were read, or written while the
 * channel was not open. */
UFD_API uint64_t ufd_channel_lost(const ufd_channel *channel);

/*
 * ufd_channel_wait waits until ufd_channel_read has a message, or ufd_channel_write has room, at most for a time in
 * nanoseconds. If the daemon or the writer has left, it opens the channel again, as ufd_channel_resume does. A reader that the
 * daemon has closed because it was too slow gets UFD_CLOSED instead, and calls ufd_channel_resume itself. A writer that waits
 * for readers polls: it looks 1000 times, then sleeps 20 microseconds between looks. Results are those of ufd_wait.
 */
UFD_API int ufd_channel_wait(ufd_channel *channel, int64_t nanoseconds);

/*
 * ufd_channel_resume opens a channel that has ended again, and attaches again before if necessary, at most for a time. A
 * writer goes on with the next sequence, also if the daemon has been started anew. A reader goes on with the next message: what
 * was written meanwhile is lost, and counted. It returns 0, also if the channel has not ended, UFD_AGAIN, UFD_REFUSED or
 * UFD_SYSTEM.
 */
UFD_API int ufd_channel_resume(ufd_channel *channel, int64_t nanoseconds);

/*
 * ufd_channel_fd returns a descriptor for poll, epoll or select: of a reader it becomes readable when a message comes, and of
 * both when the connection ends. It is used as that of ufd_fd, between ufd_channel_arm and ufd_channel_disarm.
 */
UFD_API int ufd_channel_fd(const ufd_channel *channel);

/* ufd_channel_arm says that the program is about to poll the descriptor. It returns 1 if it must not wait, 0 if it may. */
UFD_API int ufd_channel_arm(ufd_channel *channel);

/* ufd_channel_disarm ends ufd_channel_arm. */
UFD_API void ufd_channel_disarm(ufd_channel *channel);

/* ufd_channel_why is ufd_why for a channel. */
UFD_API void ufd_channel_why(const ufd_channel *channel, ufd_error *why);

/*
 * ufd_state_open opens a state of which this program is a reader, and whose name has 1 to 63 bytes. It has objects, each with a
 * number from 0 on and a payload, or keys, each with a value, or words that RDMA peers change. Results and times are those of
 * ufd_channel_open. The caller calls ufd_state_close in the end.
 */
UFD_API ufd_state *ufd_state_open(ufd_client *client, const char *state, ufd_error *why);

/* ufd_state_close closes a state and frees it. NULL: nothing. */
UFD_API void ufd_state_close(ufd_state *state);

/* ufd_state_objects returns the number of objects; 0: the state has keys or words. */
UFD_API uint64_t ufd_state_objects(const ufd_state *state);

/* ufd_state_words returns the number of words; 0: the state has objects or keys. */
UFD_API uint64_t ufd_state_words(const ufd_state *state);

/* ufd_state_room returns the length of the longest payload of an object, of a word (8), or of the value of a key of one byte. */
UFD_API uint32_t ufd_state_room(const ufd_state *state);

/*
 * ufd_state_get copies the payload of an object into to, which has room bytes, and its length. version, unless that is NULL,
 * goes up by two with each write of the object. It copies what was written at one time, never a mixture of two writes, and makes
 * no system call, but for one every few milliseconds to notice that the daemon has ended.
 *
 * It returns 1, or 0 if the object has no payload; UFD_SHORT if to is too short: length then says what it needs; UFD_AGAIN if
 * the daemon wrote the object whenever it looked, a hundred times; UFD_GONE if the daemon has ended: nobody keeps the memory up
 * to date, and ufd_state_resume opens the state again; or UFD_INVALID. to may have anything unless it returns 1.
 */
UFD_API int ufd_state_get(ufd_state *state, uint64_t object, void *to, uint32_t room, uint32_t *length, uint64_t *version);

/* ufd_state_lookup copies the value of a key of 1 to 120 bytes, as ufd_state_get does with a payload. 0: there is no such key. */
UFD_API int ufd_state_lookup(ufd_state *state, const void *key, uint32_t key_length, void *to, uint32_t room, uint32_t *length);

/* ufd_state_word returns in value a word, as RDMA peers have left it. Its result is 0, UFD_GONE as that of ufd_state_get, or
 * UFD_INVALID: there is no such word. */
UFD_API int ufd_state_word(ufd_state *state, uint64_t word, uint64_t *value);

/*
 * ufd_state_position returns in position that of the last update. What is read afterwards has at least the updates up to it: the
 * position of a receipt of ufd_poll is that of its update. run, unless that is NULL, is another number each time when the state
 * begins empty, as it does with the daemon. It returns 0, UFD_AGAIN or UFD_GONE, as ufd_state_get does.
 */
UFD_API int ufd_state_position(ufd_state *state, uint64_t *position, uint64_t *run);

/* ufd_state_conflicts returns how often this reader looked again because the daemon wrote meanwhile. */
UFD_API uint64_t ufd_state_conflicts(const ufd_state *state);

/* ufd_state_resume opens a state again whose daemon has ended, and attaches again before, at most for a time. It returns 0, also
 * if nothing has ended, UFD_AGAIN, UFD_REFUSED or UFD_SYSTEM. */
UFD_API int ufd_state_resume(ufd_state *state, int64_t nanoseconds);

/* ufd_state_why is ufd_why for a state. */
UFD_API void ufd_state_why(const ufd_state *state, ufd_error *why);

/*
 * ufd_give gives an established TCP connection of this program, such as one on which it has logged in, to a flow whose name has
 * 1 to 63 bytes, and whose configuration says that this program gives it. From then on the daemon sends the flow's orders on the
 * connection. The program keeps the descriptor fd, and closes it in the end. It may read from the connection, with
 * ufd_given_read or any other call: any other call may fail with EPERM at any time, and is to be made again then. It must not
 * write to the connection, nor change its options, until ufd_given_end returns 0.
 *
 * It waits at most 15 seconds. It returns NULL and fills why, unless that is NULL; the reason is bad_descriptor if the
 * connection does not fit, and busy if the flow has one. It does not attach again: why says UFD_GONE. The caller calls
 * ufd_given_end in the end.
 */
UFD_API ufd_given *ufd_give(ufd_client *client, const char *flow, int fd, ufd_error *why);

/*
 * ufd_given_read reads up to room bytes that the exchange has sent into to, and returns 1 and how many in length: 0 at the end of
 * the stream. It never blocks. It returns 0 if there is nothing now, UFD_INVALID if room is 0, or UFD_SYSTEM.
 */
UFD_API int ufd_given_read(ufd_given *given, void *to, uint32_t room, uint32_t *length);

/*
 * ufd_given_check returns 0 while the daemon sends on the connection; UFD_CLOSED once the connection or the flow has ended; or
 * UFD_GONE if the daemon has ended: then nobody knows what it sent last, and the program closes the connection.
 */
UFD_API int ufd_given_check(ufd_given *given);

/*
 * ufd_given_end takes the connection back, and frees given. It waits until the daemon does not send on it any more, at most 15
 * seconds. It returns 0 if that is so: the program may go on to use the connection, unless it has ended. Otherwise, with UFD_GONE
 * or UFD_AGAIN, it must close the connection. NULL: 0.
 */
UFD_API int ufd_given_end(ufd_given *given);

/* ufd_given_why is ufd_why for a connection. */
UFD_API void ufd_given_why(const ufd_given *given, ufd_error *why);

/* UFD_UPDATE_HEADER is the length of what an update has before its payload. */
#define UFD_UPDATE_HEADER 16

/*
 * These write an update of a state into memory of room bytes, such as a frame of ufd_claim for a flow that writes the state, and
 * return the length of the message for ufd_commit, or UFD_INVALID if it does not fit. A put writes the payload of an object, or
 * the value of a key, which has at most 120 bytes together with its key; a delete removes it. If payload is NULL, length bytes
 * of it lie at frame + UFD_UPDATE_HEADER already. An update that the state does not take, because it has no such object or no
 * room, changes nothing: the daemon counts it.
 */
UFD_API int ufd_put_object(void *frame, uint32_t room, uint64_t object, const void *payload, uint32_t length);
UFD_API int ufd_delete_object(void *frame, uint32_t room, uint64_t object);
UFD_API int ufd_put_key(void *frame, uint32_t room, const void *key, uint32_t key_length, const void *value, uint32_t length);
UFD_API int ufd_delete_key(void *frame, uint32_t room, const void *key, uint32_t key_length);

/* ufd_strerror returns a sentence for a result, 0 and counts included. It is valid for ever. */
UFD_API const char *ufd_strerror(int result);

/* ufd_reason returns a word for a reason, such as "not_permitted", or "unknown" for one that this release does not know. It
 * is valid for ever. */
UFD_API const char *ufd_reason(uint32_t reason);

#ifdef __cplusplus
}
#endif

#endif
