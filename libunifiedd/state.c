/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.c: states. The daemon writes objects, or keys with their values, into memory that readers map to read only. Each object
 * and each bucket of keys begins with a version, which is odd while it is written: a reader copies, and believes its copy if
 * the version was even before and is the same behind it. Words are changed by RDMA peers only. A head of one page says what the
 * state has.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* place is an object, or the beginning of a bucket. */
struct place {
	_Atomic uint64_t version; /* odd while it is written */
	_Atomic uint64_t second;  /* object: length, checksum above it. Bucket: checksum, bits of the entries in use above it */
	uint8_t bytes[];	  /* object: payload. Bucket: entries */
};

/* head_words is the head of a state. The daemon alone writes it, and only the mark once programs have it. */
struct head_words {
	uint32_t magic, kind;
	uint64_t places;
	uint32_t stride, room;
	uint64_t run, seed;
	uint8_t unused[24];
	struct {
		_Atomic uint64_t version, second;
		uint8_t payload[MARK_LEN];
	} mark; /* an object */
};

_Static_assert(offsetof(struct head_words, run) == 24 && offsetof(struct head_words, mark) == MARK_AT, "head");
_Static_assert(offsetof(struct place, bytes) == OBJECT_HEADER && OBJECT_HEADER == BUCKET_HEADER, "object and bucket");
_Static_assert(UFD_UPDATE_HEADER == UPDATE_HEADER, "updates");
_Static_assert(BUCKET_HEADER + PER_BUCKET * ENTRY_LEN == BUCKET_LEN && ENTRY_LEN % 4 == 0, "entries");

/* view is the memory of a state, with the part of its head that does not change. */
struct view {
	struct mapping memory;
	uint32_t kind, stride, room;
	uint64_t places, run, seed;
};

struct ufd_state {
	struct side side;
	int64_t looked; /* coarse time of the last look at the socket */
	struct view v;
	uint64_t conflicts; /* looks at what was being written */
};

/* outcome is what one look has found. */
enum outcome { HAVE, ABSENT, TORN, SHORT };

/* read_head fills a view from the head of memory with size bytes, and reports whether it is that of a state. */
static bool read_head(struct view *v, uint64_t size)
{
	const struct head_words *h = v->memory.at;
	uint64_t stride = BUCKET_LEN, room = MAX_KEY_VALUE, least = 2;

	v->kind = h->kind;
	v->places = h->places;
	v->stride = h->stride;
	v->room = h->room;
	v->run = h->run;
	v->seed = h->seed;
	if (v->kind == OBJECTS) {
		room = v->room < MAX_ROOM ? v->room : MAX_ROOM;
		stride = (OBJECT_HEADER + room + PLACE_UNIT - 1) / PLACE_UNIT * PLACE_UNIT;
		least = 1;
	} else if (v->kind == WORDS) {
		room = WORD_LEN;
		stride = PLACE_UNIT;
		least = 1;
	} else if (v->kind != KEYS) {
		return false;
	}
	return h->magic == STATE_MAGIC && v->stride == stride && v->room == room && v->run && v->places >= least &&
	       v->places <= MAX_PLACES && size <= MAX_STATE_LEN && HEAD_LEN + v->places * stride <= size;
}

static const struct place *place_of(const struct view *v, uint64_t n)
{
	return (const void *)((const uint8_t *)v->memory.at + HEAD_LEN + n * v->stride);
}

static uint64_t version_of(const struct place *p)
{
	return atomic_load_explicit(&p->version, memory_order_acquire);
}

/* same_version reports whether what was copied before is of a version. */
static bool same_version(const struct place *p, uint64_t version)
{
	atomic_thread_fence(memory_order_acquire); /* a byte that is written later comes with a changed version */
	return !(version & 1) && atomic_load_explicit(&p->version, memory_order_relaxed) == version;
}

/* copy_object copies the payload of an object, which has at most most bytes. */
static enum outcome copy_object(const struct place *p, uint32_t most, void *to, uint32_t room, uint32_t *length, uint64_t *version)
{
	uint64_t before = version_of(p);
	uint32_t have = (uint32_t)atomic_load_explicit(&p->second, memory_order_relaxed);
	enum outcome o = HAVE;

	if (before & 1)
		return TORN;
	if (have == NO_PAYLOAD)
		o = ABSENT;
	else if (have > most)
		return TORN;
	else if (have > room)
		o = SHORT;
	else if (have > 0)
		memcpy(to, p->bytes, have);
	if (!same_version(p, before))
		return TORN;
	*version = before;
	*length = o == ABSENT ? 0 : have;
	return o;
}

/* hash is FNV-1a of 64 bits over the seed and the key, then the finalizer of MurmurHash3. */
static uint64_t hash(uint64_t seed, const uint8_t *key, uint32_t length)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325) ^ seed;

	for (uint32_t i = 0; i < length; i++)
		h = (h ^ key[i]) * UINT64_C(0x100000001b3);
	h = (h ^ h >> 33) * UINT64_C(0xff51afd7ed558ccd);
	h = (h ^ h >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
	return h ^ h >> 33;
}

/* buckets finds the two buckets in which a key may be. They differ. */
static void buckets(const struct view *v, const void *key, uint32_t length, const struct place *both[2])
{
	uint64_t h = hash(v->seed, key, length);
	uint64_t first = (h >> 32) * v->places >> 32, second = (h & UINT32_MAX) * v->places >> 32;

	if (second == first)
		second = second + 1 == v->places ? 0 : second + 1;
	both[0] = place_of(v, first);
	both[1] = place_of(v, second);
}

/* find finds the value of a key in a bucket. Its length is believed only as far as the entry goes: it may be written meanwhile. */
static const uint8_t *find(const struct place *b, const void *key, uint32_t length, uint32_t *value)
{
	uint32_t used = (uint32_t)(atomic_load_explicit(&b->second, memory_order_relaxed) >> 32);

	for (int i = 0; i < PER_BUCKET; i++) {
		const uint8_t *e = b->bytes + i * ENTRY_LEN;
		if (!(used >> i & 1))
			continue;
		uint32_t lengths = atomic_load_explicit((const _Atomic uint32_t *)(const void *)e, memory_order_relaxed);
		if ((lengths & 0xff) != length || memcmp(e + ENTRY_HEADER, key, length) != 0)
			continue;
		*value = lengths >> 16;
		if (*value > MAX_KEY_VALUE - length)
			*value = MAX_KEY_VALUE - length;
		return e + ENTRY_HEADER + length;
	}
	return NULL;
}

/* look_up copies the value of a key. A miss counts only if neither bucket was written meanwhile: the daemon moves entries between
 * them, and writes the new place first. */
static enum outcome look_up(const struct view *v, const void *key, uint32_t key_length, void *to, uint32_t room, uint32_t *length)
{
	const struct place *both[2];
	uint64_t before[2];
	uint32_t have;

	buckets(v, key, key_length, both);
	for (int i = 0; i < 2; i++)
		before[i] = version_of(both[i]);
	for (int i = 0; i < 2; i++) {
		const uint8_t *value = before[i] & 1 ? NULL : find(both[i], key, key_length, &have);
		if (!value)
			continue;
		if (have > 0 && have <= room)
			memcpy(to, value, have);
		if (!same_version(both[i], before[i]))
			return TORN;
		*length = have;
		return have > room ? SHORT : HAVE;
	}
	return same_version(both[0], before[0]) && same_version(both[1], before[1]) ? ABSENT : TORN;
}

/* install maps the memory that comes with the daemon's answer. */
static int install(ufd_state *s)
{
	struct opened *o = &s->side.q.opened;
	struct view v = {0};
	ufd_error why = {0};

	errno = EPROTO;
	if (o->size < HEAD_LEN || ufdi_map(&v.memory, o->fds[0], o->size, PROT_READ, 0) || (errno = EPROTO, !read_head(&v, o->size))) {
		int saved = errno;
		ufdi_fail(&why, UFD_SYSTEM, UFD_REASON_NONE, "open state %s", s->side.name);
		ufdi_unmap(&v.memory);
		ufdi_rejected(&s->side, &why);
		errno = saved;
		return UFD_SYSTEM;
	}
	ufdi_unmap(&s->v.memory);
	s->v = v;
	close(o->fds[0]);
	ufdi_installed(&s->side);
	return 0;
}

ufd_state *ufd_state_open(ufd_client *client, const char *state, ufd_error *why)
{
	if (!state || !*state || strlen(state) > MAX_NAME) {
		ufdi_fail(why, UFD_INVALID, UFD_REASON_NONE, "open a state: its name has 1 to %d bytes", MAX_NAME);
		return NULL;
	}
	ufd_state *s = calloc(1, sizeof(*s));
	if (!s) {
		ufdi_fail(why, UFD_SYSTEM, UFD_REASON_NONE, "open state %s", state);
		return NULL;
	}
	s->side.client = client;
	strcpy(s->side.name, state);
	s->side.role = LOOK;
	ufdi_enter(&s->side);
	if (ufdi_open(&s->side) == 0 && install(s) == 0)
		return s;
	if (why)
		ufdi_why(&s->side, why);
	ufd_state_close(s);
	return NULL;
}

void ufd_state_close(ufd_state *s)
{
	int saved = errno;

	if (!s)
		return;
	ufdi_leave(&s->side);
	ufdi_unmap(&s->v.memory);
	free(s);
	errno = saved;
}

uint64_t ufd_state_objects(const ufd_state *s)
{
	return s->v.kind == OBJECTS ? s->v.places : 0;
}

uint64_t ufd_state_words(const ufd_state *s)
{
	return s->v.kind == WORDS ? s->v.places : 0;
}

uint32_t ufd_state_room(const ufd_state *s)
{
	return s->v.kind == KEYS ? MAX_KEY_VALUE - 1 : s->v.room;
}

/* result returns what a function returns for the last outcome of its looks. */
static int result(enum outcome o)
{
	switch (o) {
	case HAVE:
		return 1;
	case ABSENT:
		return 0;
	case SHORT:
		return UFD_SHORT;
	default:
		return UFD_AGAIN;
	}
}

int ufd_state_get(ufd_state *s, uint64_t object, void *to, uint32_t room, uint32_t *length, uint64_t *version)
{
	int over = ufdi_check_ended(&s->side, &s->looked);
	uint32_t most = s->v.stride - OBJECT_HEADER, have;
	enum outcome o = TORN;
	uint64_t at = 0;

	if (over)
		return over; /* nobody keeps the memory up to date */
	if (s->v.kind != OBJECTS || object >= s->v.places || !length || (!to && room))
		return UFD_INVALID;
	for (int i = 0; i < TRIES && o == TORN; i++)
		if ((o = copy_object(place_of(&s->v, object), most, to, room, &have, &at)) == TORN)
			s->conflicts++;
	if (o == TORN)
		return UFD_AGAIN;
	*length = have;
	if (version)
		*version = at;
	return result(o);
}

int ufd_state_lookup(ufd_state *s, const void *key, uint32_t key_length, void *to, uint32_t room, uint32_t *length)
{
	int over = ufdi_check_ended(&s->side, &s->looked);
	enum outcome o = TORN;
	uint32_t have = 0;

	if (over)
		return over;
	if (s->v.kind != KEYS || !key || key_length < 1 || key_length > MAX_KEY_VALUE || !length || (!to && room))
		return UFD_INVALID;
	for (int i = 0; i < TRIES && o == TORN; i++)
		if ((o = look_up(&s->v, key, key_length, to, room, &have)) == TORN)
			s->conflicts++;
	if (o != TORN)
		*length = have;
	return result(o);
}

int ufd_state_word(ufd_state *s, uint64_t word, uint64_t *value)
{
	int over = ufdi_check_ended(&s->side, &s->looked);

	if (over)
		return over;
	if (s->v.kind != WORDS || word >= s->v.places || !value)
		return UFD_INVALID;
	*value = version_of(place_of(&s->v, word)); /* a word lies where an object has its version */
	return 0;
}

int ufd_state_position(ufd_state *s, uint64_t *position, uint64_t *run)
{
	int over = ufdi_check_ended(&s->side, &s->looked);
	const struct head_words *h = s->v.memory.at;
	const struct place *mark = (const void *)&h->mark;
	uint64_t words[MARK_LEN / 8], version;
	uint32_t length;

	if (over)
		return over;
	for (int i = 0; i < TRIES; i++) {
		if (copy_object(mark, MARK_LEN, words, MARK_LEN, &length, &version) == HAVE && length == MARK_LEN) {
			*position = words[0];
			if (run)
				*run = s->v.run;
			return 0;
		}
		s->conflicts++;
	}
	return UFD_AGAIN;
}

uint64_t ufd_state_conflicts(const ufd_state *s)
{
	return s->conflicts;
}

int ufd_state_resume(ufd_state *s, int64_t nanoseconds)
{
	ufdi_look(&s->side);
	if (!ufdi_ended(&s->side))
		return 0;
	int r = ufdi_reopen(&s->side, ufdi_deadline(nanoseconds));
	return r == 0 ? install(s) : r;
}

void ufd_state_why(const ufd_state *s, ufd_error *why)
{
	ufdi_why(&s->side, why);
}

/* update writes the header of an update into a frame, which has key and value, or a payload, behind it. It returns the length of
 * the message, or UFD_INVALID if it does not fit. */
static int update(void *frame, uint32_t room, uint8_t operation, uint8_t key, uint64_t object, uint64_t rest)
{
	uint8_t *b = frame;

	if (!frame || room < UFD_UPDATE_HEADER || rest > room - UFD_UPDATE_HEADER || rest > INT32_MAX - UFD_UPDATE_HEADER)
		return UFD_INVALID;
	memset(b, 0, UFD_UPDATE_HEADER);
	b[0] = operation;
	b[1] = key;
	memcpy(b + 8, &object, 8);
	return (int)rest + UFD_UPDATE_HEADER;
}

int ufd_put_object(void *frame, uint32_t room, uint64_t object, const void *payload, uint32_t length)
{
	int n = update(frame, room, PUT, 0, object, length);

	if (n > 0 && payload && length > 0)
		memcpy((uint8_t *)frame + UFD_UPDATE_HEADER, payload, length);
	return n;
}

int ufd_delete_object(void *frame, uint32_t room, uint64_t object)
{
	return update(frame, room, DELETE, 0, object, 0);
}

int ufd_put_key(void *frame, uint32_t room, const void *key, uint32_t key_length, const void *value, uint32_t length)
{
	if (!key || key_length < 1 || key_length > MAX_KEY_VALUE || length > MAX_KEY_VALUE - key_length || (!value && length))
		return UFD_INVALID;
	int n = update(frame, room, PUT, (uint8_t)key_length, 0, (uint64_t)key_length + length);
	if (n > 0)
		memcpy((uint8_t *)frame + UFD_UPDATE_HEADER, key, key_length);
	if (n > 0 && length > 0)
		memcpy((uint8_t *)frame + UFD_UPDATE_HEADER + key_length, value, length);
	return n;
}

int ufd_delete_key(void *frame, uint32_t room, const void *key, uint32_t key_length)
{
	if (!key || key_length < 1 || key_length > MAX_KEY_VALUE)
		return UFD_INVALID;
	int n = update(frame, room, DELETE, (uint8_t)key_length, 0, key_length);
	if (n > 0)
		memcpy((uint8_t *)frame + UFD_UPDATE_HEADER, key, key_length);
	return n;
}
