/* SPDX-License-Identifier: Apache-2.0 */
/* driver_state: the driver's commands for states. */
#define _POSIX_C_SOURCE 200809L
#include "driver.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OBJECTS = 16, WORDS = 64, KEYS = 1000, KEY_LEN = 5, REPEATS = 10 }; /* of what churn writes */

static ufd_state *state; /* the one that is open */
static uint64_t churned; /* updates of churn so far */

void close_state(void)
{
	ufd_state_close(state);
	state = NULL;
	churned = 0;
}

static void fail_state(int result)
{
	ufd_error why = {0};

	if (result == UFD_GONE || result == UFD_REFUSED)
		ufd_state_why(state, &why);
	fail(result, why.reason);
}

/* frame_of waits for a frame to fill. It returns NULL if there is none any more, and then *r says why. */
static void *frame_of(uint32_t *room, int *r)
{
	void *frame;

	while (!(frame = ufd_claim(sender, room)))
		if ((*r = collect()) < 0)
			return NULL;
	return frame;
}

/* finish waits until all messages of a command are done. */
static int finish(void)
{
	int r = 0;

	while (r == 0 && first + done < ufd_next(sender))
		r = collect();
	return r;
}

/* update runs a command that is one update. */
static void update(const char *what, const char *a, const char *b, uint64_t n, uint64_t length)
{
	static uint8_t payload[4096];
	uint32_t room, key = (uint32_t)strlen(a);
	int r = 0;

	first = ufd_next(sender);
	done = position = 0;
	void *frame = frame_of(&room, &r);
	if (frame && !strcmp(what, "putobject")) {
		memset(payload, (int)(n + length), sizeof(payload));
		r = ufd_put_object(frame, room, n, payload, (uint32_t)length);
	} else if (frame && !strcmp(what, "deleteobject")) {
		r = ufd_delete_object(frame, room, n);
	} else if (frame && !strcmp(what, "putkey")) {
		r = ufd_put_key(frame, room, a, key, b, (uint32_t)strlen(b));
	} else if (frame) {
		r = ufd_delete_key(frame, room, a, key);
	}
	if (r > 0)
		r = ufd_commit(sender, frame, (uint32_t)r, NULL);
	else if (frame)
		ufd_discard(sender, frame);
	if (r == 0)
		r = finish();
	if (r < 0)
		fail_port(sender, r);
	else
		printf("updated %" PRIu64 "\n", position);
}

/* put_words writes one of 16 objects: all words of it are the number of the update, and so is the length. */
static int put_words(void *frame, uint32_t room, uint64_t n)
{
	uint32_t words = (uint32_t)(1 + n % WORDS);

	for (uint32_t i = 0; i < words && room >= UFD_UPDATE_HEADER + 8 * words; i++)
		memcpy((uint8_t *)frame + UFD_UPDATE_HEADER + 8 * i, &n, 8);
	return ufd_put_object(frame, room, n % OBJECTS, NULL, 8 * words);
}

/* put_keys writes 1000 keys, and then removes and writes every other one. A value is its key, up to 10 times. */
static int put_keys(void *frame, uint32_t room, uint64_t n)
{
	char key[24], value[KEY_LEN * REPEATS];
	uint64_t k = n < KEYS ? n : (((n - KEYS) / 2) * 2 + 1) % KEYS;
	uint32_t repeats = (uint32_t)(1 + n % REPEATS);

	snprintf(key, sizeof(key), "k%04" PRIu64, k);
	if (n >= KEYS && n % 2 == 0)
		return ufd_delete_key(frame, room, key, KEY_LEN);
	for (uint32_t i = 0; i < repeats; i++)
		memcpy(value + i * KEY_LEN, key, KEY_LEN);
	return ufd_put_key(frame, room, key, KEY_LEN, value, repeats * KEY_LEN);
}

static void churn(uint64_t n, int keys)
{
	uint32_t room;
	int r = 0;

	first = ufd_next(sender);
	done = position = 0;
	for (uint64_t i = 0; i < n && r == 0; i++, churned++) {
		void *frame = frame_of(&room, &r);
		if (frame && (r = keys ? put_keys(frame, room, churned) : put_words(frame, room, churned)) > 0)
			r = ufd_commit(sender, frame, (uint32_t)r, NULL);
	}
	if (r == 0)
		r = finish();
	if (r < 0)
		fail_port(sender, r);
	else
		printf("churned %" PRIu64 "\n", n);
}

/* sound_object reads an object of churn. It returns 1 if it is one write. */
static int sound_object(uint64_t turn)
{
	uint64_t words[WORDS];
	uint32_t length = 0;
	int r = ufd_state_get(state, turn % OBJECTS, words, sizeof(words), &length, NULL);

	if (r != 1)
		return r;
	for (uint32_t i = 0; i < length / 8; i++)
		if (words[i] != words[0])
			return 0;
	return length >= 8 && words[0] % OBJECTS == turn % OBJECTS && length == 8 * (1 + words[0] % WORDS);
}

/* sound_key reads a key of churn. Every other key is always there. */
static int sound_key(uint64_t turn)
{
	char key[24], value[128];
	uint32_t length = 0;

	snprintf(key, sizeof(key), "k%04" PRIu64, turn % KEYS);
	int r = ufd_state_lookup(state, key, KEY_LEN, value, sizeof(value), &length);
	if (r != 1)
		return r == 0 ? turn % 2 == 1 : r;
	for (uint32_t i = 0; i + KEY_LEN <= length; i += KEY_LEN)
		if (memcmp(value + i, key, KEY_LEN) != 0)
			return 0;
	return length >= KEY_LEN && length % KEY_LEN == 0;
}

static void verify(uint64_t n, int keys)
{
	uint64_t sound = 0;
	int r = 1;

	for (uint64_t turn = 0; sound < n && (r == 1 || r == UFD_AGAIN); turn += 7) {
		r = keys ? sound_key(turn) : sound_object(turn);
		sound += r == 1;
	}
	if (r < 0 && r != UFD_AGAIN)
		fail_state(r);
	else
		printf("sound %" PRIu64 "\n", sound);
}

static void get_object(uint64_t n, uint32_t room)
{
	static uint8_t payload[4096];
	uint32_t length = 0, sum = 0;
	uint64_t version = 0;
	int r = ufd_state_get(state, n, payload, room, &length, &version);

	for (uint32_t i = 0; r == 1 && i < length; i++)
		sum += payload[i];
	if (r < 0)
		fail_state(r);
	else if (r == 0)
		printf("no object %" PRIu64 "\n", version);
	else
		printf("object %" PRIu32 " %" PRIu64 " %" PRIu32 "\n", length, version, sum);
}

static void get_key(const char *key, uint32_t room)
{
	char value[128];
	uint32_t length = 0;
	int r = ufd_state_lookup(state, key, (uint32_t)strlen(key), value, room, &length);

	if (r < 0)
		fail_state(r);
	else if (r == 0)
		puts("no key");
	else
		printf("key %.*s\n", (int)length, value);
}

static void open_state(const char *name)
{
	ufd_error why = {0};

	close_state();
	state = ufd_state_open(client, name, &why);
	if (!state)
		fail(why.result, why.reason);
	else if (ufd_state_words(state) > 0)
		printf("words %" PRIu64 "\n", ufd_state_words(state));
	else
		printf("state %" PRIu64 " %" PRIu32 "\n", ufd_state_objects(state), ufd_state_room(state));
}

static void get_word(uint64_t n)
{
	uint64_t value;
	int r = ufd_state_word(state, n, &value);

	if (r < 0)
		fail_state(r);
	else
		printf("word %" PRIu64 "\n", value);
}

static void print_position(void)
{
	static uint64_t last;
	uint64_t at, run;
	int r = ufd_state_position(state, &at, &run);

	if (r < 0) {
		fail_state(r);
		return;
	}
	printf("position %" PRIu64 " %s\n", at, run == last ? "same" : "other");
	last = run;
}

int run_state(const char *what, const char *a, const char *b, uint64_t n, uint64_t x)
{
	int r, keys = !strcmp(b, "keys");

	if (!strcmp(what, "state") && client) {
		open_state(a);
	} else if (sender && (!strcmp(what, "putobject") || !strcmp(what, "deleteobject") || !strcmp(what, "putkey") || !strcmp(what, "deletekey"))) {
		update(what, a, b, n, x);
	} else if (sender && !strcmp(what, "churn")) {
		churn(n, keys);
	} else if (!state) {
		return 0;
	} else if (!strcmp(what, "verify")) {
		verify(n, keys);
	} else if (!strcmp(what, "getobject")) {
		get_object(n, (uint32_t)x);
	} else if (!strcmp(what, "getkey")) {
		get_key(a, (uint32_t)x);
	} else if (!strcmp(what, "getword")) {
		get_word(n);
	} else if (!strcmp(what, "position")) {
		print_position();
	} else if (!strcmp(what, "resume")) {
		if ((r = ufd_state_resume(state, UFD_FOREVER)) < 0)
			fail_state(r);
		else
			puts("resumed");
	} else {
		return 0;
	}
	return 1;
}
