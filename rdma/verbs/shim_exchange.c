//go:build verbs && cgo

#include "shim.h"

#include <sched.h>

enum {
	LOOKS = 8,	 // in vain, before others are let in
	CLOCK_LOOKS = 32 // before a look at the clock
};

static int arrived(const struct ud_exchange *x)
{
	return (uint8_t)(__atomic_load_n((const uint32_t *)x->word, __ATOMIC_ACQUIRE) >> x->shift) == x->number;
}

// look waits for a completion of the queue, or where that is 0 for the byte: 1, 0 when the time
// is over, or below it if there is no looking.
static int look(const struct ud_exchange *x, uintptr_t queue, struct ibv_wc *wc)
{
	struct ibv_cq *cq = (struct ibv_cq *)queue;

	for (uint32_t i = 1;; i++) {
		int got = cq ? cq->context->ops.poll_cq(cq, 1, wc) : arrived(x);

		if (got)
			return got;
		if (x->gives && i % LOOKS == 0)
			sched_yield();
		if (i % CLOCK_LOOKS == 0 && ud_now() >= x->until)
			return 0;
	}
}

// complete waits for a completion of the queue, and takes one off what it counts.
static enum ud_stopped complete(const struct ud_exchange *x, uintptr_t cq, uint32_t *open, struct ibv_wc *wc)
{
	int got = look(x, cq, wc);

	if (got < 0)
		return cq == x->sent ? UD_NO_SENT : UD_NO_CAME;
	if (!got)
		return UD_LATE;
	*open -= 1;
	return wc->status == IBV_WC_SUCCESS ? UD_GOES_ON : UD_FAILED;
}

// turn waits until the request may be posted.
static enum ud_stopped turn(struct ud_exchange *x, struct ibv_wc *wc)
{
	enum ud_stopped why = UD_GOES_ON;
	uint32_t left = 1;

	while (!why && x->open >= x->ahead)
		why = complete(x, x->sent, &x->open, wc);
	if (why || x->begun)
		return why;
	if (x->came) {
		why = complete(x, x->came, &left, wc);
		x->taken += !left;
	} else if (x->word) {
		why = look(x, 0, wc) ? UD_GOES_ON : UD_LATE;
	} else {
		while (!why && x->open)
			why = complete(x, x->sent, &x->open, wc);
	}
	x->begun = why == UD_GOES_ON;
	return why;
}

// ready makes the request as libibverbs has it, once for all rounds of a call: what is done between a message and its answer counts.
static enum ud_stopped ready(struct ud_exchange *x, struct ud_chain *c)
{
	const struct ibv_qp *qp = (struct ibv_qp *)x->qp;

	c->n = c->inlined = 0;
	x->posted = (struct ud_posted){0, UD_STATE};
	if (qp->state >= IBV_QPS_RTS)
		x->posted.why = ud_put(c, qp, (struct ud_tables *)x->tables, &x->request, &x->element, 1);
	return x->posted.why ? UD_NO_SEND : UD_GOES_ON;
}

// post posts the request.
static enum ud_stopped post(struct ud_exchange *x, struct ud_chain *c)
{
	if (x->last)
		*(uint8_t *)x->last += 1;
	x->posted = ud_give((struct ibv_qp *)x->qp, c);
	return x->posted.taken ? UD_GOES_ON : UD_NO_SEND;
}

enum ud_stopped ud_exchange(struct ud_exchange *x, const struct ud_receive *again, const struct ibv_sge *into, uint64_t *times, struct ibv_wc *wc)
{
	struct ud_chain c;
	enum ud_stopped why = ready(x, &c);

	for (; !why && x->rounds; x->rounds--) {
		why = turn(x, wc);
		if (!why)
			why = post(x, &c);
		if (why)
			return why;
		if (times)
			*times++ = ud_now();
		x->begun = 0;
		x->open++;
		x->number++;
		if (!x->receives || x->taken < x->receives)
			continue;
		x->taken = 0;
		x->posted = ud_post_receive(x->qp, again, x->receives, into, x->receives);
		if (x->posted.taken < x->receives) {
			x->rounds--;
			return UD_NO_RECEIVE;
		}
	}
	return why;
}
