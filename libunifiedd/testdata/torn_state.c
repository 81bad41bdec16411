/* SPDX-License-Identifier: Apache-2.0 */
/* torn_state: reads of objects and keys that are written at full rate, as the daemon writes them. It includes what it tests. */
#include "../state.c"
#include "torn.h"

enum { N = 16, ROOM = 2048, MOST_WORDS = ROOM / 8, STRIDE = 2112, BUCKETS = 2, KEY = 8 };

static _Alignas(64) uint8_t memory[HEAD_LEN + N * STRIDE];
static struct view state;

static void lay_out(uint32_t kind, uint32_t stride, uint32_t room, uint64_t places)
{
	struct head_words *h = (void *)memory;

	memset(memory, 0, sizeof(memory));
	h->magic = STATE_MAGIC;
	h->kind = kind;
	h->places = places;
	h->stride = stride;
	h->room = room;
	h->run = 1;
	h->seed = 12345;
	state = (struct view){.memory = {memory, sizeof(memory)}};
	if (!read_head(&state, sizeof(memory))) {
		fprintf(stderr, "the head is refused\n");
		exit(1);
	}
}

/* begin_write and end_write are the writer's. */
static uint64_t begin_write(struct place *p)
{
	uint64_t v = atomic_load_explicit(&p->version, memory_order_relaxed);

	atomic_store_explicit(&p->version, v + 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
	return v + 2;
}

static void end_write(struct place *p, uint64_t second, uint64_t version)
{
	atomic_store_explicit(&p->second, second, memory_order_relaxed);
	atomic_store_explicit(&p->version, version, memory_order_release);
}

static struct place *place_to_write(uint64_t n)
{
	return (void *)(memory + HEAD_LEN + n * state.stride);
}

/* write_object writes words that are all the number of the write, and so many that their number follows from it. */
static void write_object(uint64_t n)
{
	struct place *p = place_to_write(n % N);
	uint64_t words = 1 + n % MOST_WORDS, version = begin_write(p);

	for (uint64_t i = 0; i < words; i++)
		memcpy(p->bytes + 8 * i, &n, 8);
	end_write(p, 8 * words, version);
}

static enum look read_object(uint64_t turn, int check)
{
	const struct place *p = place_of(&state, turn * 7 % N);
	uint64_t words[MOST_WORDS], version;
	uint32_t length = (uint32_t)atomic_load_explicit(&p->second, memory_order_relaxed);

	if (check) {
		enum outcome o = copy_object(p, STRIDE - OBJECT_HEADER, words, sizeof(words), &length, &version);
		if (o != HAVE)
			return o == TORN ? CONFLICT : MIXTURE;
	} else {
		memcpy(words, p->bytes, length);
	}
	for (uint32_t i = 1; i < length / 8; i++)
		if (words[i] != words[0])
			return MIXTURE;
	return length == 0 || (length == 8 * (1 + words[0] % MOST_WORDS) && words[0] % N == turn * 7 % N) ? SOUND : MIXTURE;
}

/* set_entry writes an entry of a bucket. With a NULL key it is not in use afterwards. */
static void set_entry(struct place *b, int entry, const char *key, const uint8_t *value, uint32_t length)
{
	uint32_t used = (uint32_t)(atomic_load_explicit(&b->second, memory_order_relaxed) >> 32) & ~(1u << entry);
	uint8_t *e = b->bytes + entry * ENTRY_LEN;
	uint64_t version = begin_write(b);

	if (key) {
		uint32_t lengths = KEY | length << 16;
		memcpy(e, &lengths, 4);
		memcpy(e + ENTRY_HEADER, key, KEY);
		memcpy(e + ENTRY_HEADER + KEY, value, length);
		used |= 1u << entry;
	} else {
		memset(e, 0, ENTRY_LEN);
	}
	end_write(b, (uint64_t)used << 32, version);
}

static const char the_key[KEY + 1] = "key-no-1";

/* write_key writes the value of a key, and moves it to its other bucket every third time: the new place first. */
static void write_key(uint64_t n)
{
	uint8_t value[MAX_KEY_VALUE - KEY];
	uint32_t length = (uint32_t)(1 + n % sizeof(value));
	static int at, entry; /* where it is */

	memset(value, (int)length, sizeof(value));
	if (n > 0 && n % 3 == 0) {
		int other = !at, to = (int)(n % PER_BUCKET);
		set_entry(place_to_write((uint64_t)other), to, the_key, value, length);
		set_entry(place_to_write((uint64_t)at), entry, NULL, NULL, 0);
		at = other;
		entry = to;
	} else {
		set_entry(place_to_write((uint64_t)at), entry, the_key, value, length);
	}
}

static enum look read_key(uint64_t turn, int check)
{
	uint8_t value[MAX_KEY_VALUE];
	uint32_t length = 0;

	(void)turn;
	if (check) {
		enum outcome o = look_up(&state, the_key, KEY, value, sizeof(value), &length);
		if (o != HAVE)
			return o == TORN ? CONFLICT : MIXTURE; /* it is always there */
	} else {
		const struct place *both[2];
		const uint8_t *v = NULL;
		buckets(&state, the_key, KEY, both);
		for (int i = 0; i < 2 && !v; i++)
			v = find(both[i], the_key, KEY, &length);
		if (!v)
			return MIXTURE;
		memcpy(value, v, length);
	}
	for (uint32_t i = 0; i < length; i++)
		if (value[i] != (uint8_t)length)
			return MIXTURE;
	return length > 0 ? SOUND : MIXTURE;
}

/* hostile reads heads, objects and buckets that have anything. It returns 0 if a head is refused whose places do not fit, and
 * nothing is copied that is longer than its place; a sanitizer sees what is read or written outside. */
static int hostile(uint64_t reads)
{
	uint64_t refused = 0, found[4] = {0}, version;
	uint32_t length, room = 100;
	uint8_t *to = malloc(room);

	for (uint64_t turn = 0; turn < reads; turn++) {
		if (turn % 1000 == 0)
			lay_out(turn % 2000 ? KEYS : OBJECTS, turn % 2000 ? BUCKET_LEN : STRIDE, turn % 2000 ? MAX_KEY_VALUE : ROOM, BUCKETS);
		struct place *p = place_to_write(turn % BUCKETS);
		torn_spoil(memory + HEAD_LEN, BUCKETS * state.stride, 8);
		atomic_store(&p->version, torn_random());
		if (turn % 3)
			atomic_store(&p->second, torn_random() << 32 | torn_random() % 3000);
		enum outcome o = state.kind == OBJECTS ? copy_object(p, state.stride - OBJECT_HEADER, to, room, &length, &version)
						       : look_up(&state, p->bytes + ENTRY_HEADER, 1 + (uint32_t)turn % MAX_KEY_VALUE, to, room, &length);
		found[o]++;
		if ((o == HAVE && length > room) || (o == SHORT && (length <= room || length > state.stride)))
			return 1;
		uint8_t head[HEAD_LEN];
		memcpy(head, memory, sizeof(head));
		torn_spoil(head, 64, 1);
		struct view v = {.memory = {head, sizeof(head)}};
		if (!read_head(&v, sizeof(memory)))
			refused++;
		else if (HEAD_LEN + v.places * v.stride > sizeof(memory) || v.stride < OBJECT_HEADER + v.room)
			return 1;
	}
	free(to);
	printf("hostile states: %" PRIu64 " there, %" PRIu64 " absent, %" PRIu64 " torn, %" PRIu64 " longer, %" PRIu64 " heads refused\n", found[HAVE],
	       found[ABSENT], found[TORN], found[SHORT], refused);
	return !found[HAVE] || !found[ABSENT] || !found[TORN] || !found[SHORT] || !refused || refused == reads;
}

int main(int argc, char **argv)
{
	uint64_t reads = torn_argument(argc, argv);

	int r = hostile(reads);
	lay_out(OBJECTS, STRIDE, ROOM, N);
	r |= torn_run(&(struct torn){"objects", write_object, read_object}, reads);
	lay_out(KEYS, BUCKET_LEN, MAX_KEY_VALUE, BUCKETS);
	write_key(0);
	return r | torn_run(&(struct torn){"keys", write_key, read_key}, reads);
}
