/* SPDX-License-Identifier: Apache-2.0 */
/* torn_channel: reads of slots of a channel that are written at full rate, with checksums and without. It includes what it tests. */
#include "../channel.c"
#include "torn.h"

enum { SLOTS = 16, SLOT = 2048, MOST_WORDS = (SLOT - SLOT_HEADER) / 8 };

static _Alignas(64) uint8_t memory[RING_HEADER + SLOTS * SLOT];
static ufd_channel writer;

static void lay_out(uint32_t flags)
{
	memset(memory, 0, sizeof(memory));
	writer = (ufd_channel){.next = 1, .m = {.ring = {memory, sizeof(memory)}, .slots = SLOTS, .slot = SLOT, .flags = flags}};
}

static void write_slot(uint64_t n)
{
	uint64_t words[MOST_WORDS], count = 1 + writer.next % MOST_WORDS;

	(void)n;
	for (uint64_t i = 0; i < count; i++)
		words[i] = writer.next;
	put(&writer, words, (uint32_t)(8 * count));
}

/* write_unordered writes a slot as RDMA may: the sequence is there before the rest. */
static void write_unordered(uint64_t n)
{
	struct slot *s = slot_of(&writer.m, writer.next);
	uint64_t words[MOST_WORDS], count = 1 + writer.next % MOST_WORDS;

	(void)n;
	for (uint64_t i = 0; i < count; i++)
		words[i] = writer.next;
	uint32_t sum = slot_sum(writer.next, (uint32_t)(8 * count), words);
	atomic_store_explicit(&s->sequence, writer.next, memory_order_relaxed);
	atomic_store_explicit(&s->second, 8 * count | (uint64_t)sum << 32, memory_order_relaxed);
	for (uint64_t i = count; i-- > 0;) /* from behind */
		memcpy(s->payload + 8 * i, &words[i], 8);
	atomic_store_explicit(&header_of(&writer.m)->last, writer.next, memory_order_release);
	writer.next++;
}

static enum look read_at(uint64_t n, int check)
{
	struct mapped m = {.ring = {memory, sizeof(memory)}, .slots = SLOTS, .slot = SLOT, .flags = writer.m.flags};
	uint64_t words[MOST_WORDS];
	struct slot *s = slot_of(&m, n);
	uint32_t length = (uint32_t)atomic_load_explicit(&s->second, memory_order_relaxed);

	if (check) {
		enum found f = copy(&m, n, words, &length);
		if (f != COPIED)
			return f == NOT_YET ? CONFLICT : MIXTURE;
	} else {
		memcpy(words, s->payload, length);
	}
	for (uint32_t i = 0; i < length / 8; i++)
		if (words[i] != words[0])
			return MIXTURE;
	if (check && words[0] != n)
		return MIXTURE;
	return length == 0 || length == 8 * (1 + words[0] % MOST_WORDS) ? SOUND : MIXTURE;
}

/* read_oldest reads one of the oldest messages, which the writer is about to replace. */
static enum look read_oldest(uint64_t turn, int check)
{
	uint64_t last = last_of(&writer.m);

	return read_at(last > SLOTS + 2 ? last - SLOTS + 1 + turn % 3 : 1, check);
}

/* read_next_slot reads the message that is being written, or the last one. */
static enum look read_next_slot(uint64_t turn, int check)
{
	return read_at(last_of(&writer.m) + turn % 2, check);
}

/* hostile reads slots in which the writer has put anything. It returns 0 if nothing is copied that is longer than a slot has; a
 * sanitizer sees what is read or written outside. */
static int hostile(uint64_t reads)
{
	struct mapped m = {.ring = {memory, sizeof(memory)}, .slots = SLOTS, .slot = SLOT};
	uint64_t found[4] = {0};
	uint8_t *to = malloc(SLOT - SLOT_HEADER);

	memset(memory, 0, sizeof(memory));
	for (uint64_t turn = 0; turn < reads; turn++) {
		uint64_t n = torn_random();
		uint32_t length = 0;
		struct slot *s = slot_of(&m, n);
		m.flags = (uint32_t)turn % 4;
		torn_spoil(memory, sizeof(memory), 8);
		atomic_store(&s->second, torn_random());
		if (turn % 2)
			atomic_store(&s->sequence, n);
		enum found f = get(&m, n, to, &length);
		found[f]++;
		if (f == COPIED && length > SLOT - SLOT_HEADER)
			return 1;
	}
	free(to);
	printf("hostile slots: %" PRIu64 " not there, %" PRIu64 " copied, %" PRIu64 " passed, %" PRIu64 " damaged\n", found[NOT_YET], found[COPIED],
	       found[PASSED], found[DAMAGED]);
	return !found[COPIED] || !found[PASSED] || !found[DAMAGED];
}

int main(int argc, char **argv)
{
	uint64_t reads = torn_argument(argc, argv);
	int r = hostile(reads);

	lay_out(0);
	r |= torn_run(&(struct torn){"slots", write_slot, read_oldest}, reads);
	lay_out(SUMS | UNORDERED);
	r |= torn_run(&(struct torn){"slots with checksums", write_slot, read_oldest}, reads);
	lay_out(SUMS | UNORDERED);
	return r | torn_run(&(struct torn){"slots that come unordered", write_unordered, read_next_slot}, reads);
}
