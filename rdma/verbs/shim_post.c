//go:build verbs && cgo

#include "shim.h"

#include <errno.h>
#include <string.h>

enum { FULL = 1 }; // there is no more room in the chain

// Requests as libibverbs has them.
enum {
	UD_CHAIN = 64,	     // given to the device at a time
	UD_INLINE_SGES = 64, // elements with inline data among them
};

struct chain {
	uint32_t n, inlined;
	struct ibv_send_wr wr[UD_CHAIN];
	struct ibv_sge inline_sges[UD_INLINE_SGES];
};

// allowed has the operations of each transport, a bit for each: Transport.Allows. What is
// not here would have libibverbs follow pointers that a request does not have.
static uint32_t allowed(enum ibv_qp_type t)
{
	const uint32_t sends = 1 << IBV_WR_SEND | 1 << IBV_WR_SEND_WITH_IMM;
	const uint32_t writes = 1 << IBV_WR_RDMA_WRITE | 1 << IBV_WR_RDMA_WRITE_WITH_IMM | 1 << IBV_WR_LOCAL_INV;

	switch (t) {
	case IBV_QPT_RC:
		return sends | writes | 1 << IBV_WR_RDMA_READ | 1 << IBV_WR_ATOMIC_CMP_AND_SWP | 1 << IBV_WR_ATOMIC_FETCH_AND_ADD |
		       1 << IBV_WR_SEND_WITH_INV;
	case IBV_QPT_UC:
		return sends | writes;
	case IBV_QPT_UD:
		return sends;
	default:
		return 0;
	}
}

void ud_set_handle(struct ud_tables *t, uint32_t id, struct ibv_ah *ah)
{
	__atomic_store_n(&t->handles[id], ah, __ATOMIC_RELEASE);
}

void ud_set_memory(struct ud_tables *t, uint32_t place, struct ud_memory m)
{
	struct ud_memory *to = &t->memories[place];
	uint32_t used = m.used;

	__atomic_store_n(&to->used, 0, __ATOMIC_RELEASE);
	if (!used)
		return;
	m.used = 0;
	*to = m;
	__atomic_store_n(&to->used, 1, __ATOMIC_RELEASE);
}

// mapped makes addresses of memory out of those of the registration: of inline data
// libibverbs reads the bytes itself.
static int mapped(const struct ud_tables *t, struct ibv_sge *sge)
{
	for (int i = 0; i < UD_MEMORIES; i++) {
		const struct ud_memory *m = &t->memories[i];

		if (!__atomic_load_n(&m->used, __ATOMIC_ACQUIRE) || m->lkey != sge->lkey)
			continue;
		if (sge->addr < m->first || sge->addr - m->first > m->length || sge->length > m->length - (sge->addr - m->first))
			break;
		sge->addr = m->base + (sge->addr - m->first);
		return 0;
	}
	return sge->length ? UD_INLINE_MEMORY : 0;
}

// put_inline gives the request elements of its own, with mapped addresses.
static int put_inline(struct chain *c, struct ibv_send_wr *wr, const struct ud_tables *t, const struct ibv_sge *sges, uint32_t n)
{
	struct ibv_sge *to = c->inline_sges + c->inlined;

	if (n > UD_INLINE_SGES)
		return EINVAL;
	if (n > UD_INLINE_SGES - c->inlined)
		return FULL;
	for (uint32_t i = 0; i < n; i++) {
		to[i] = sges[i];
		if (mapped(t, &to[i]))
			return UD_INLINE_MEMORY;
	}
	c->inlined += n;
	wr->sg_list = to;
	return 0;
}

// put_remote fills in what differs between operations and transports.
static int put_remote(struct ibv_send_wr *wr, enum ibv_qp_type type, const struct ud_tables *t, const struct ud_send *r)
{
	switch (wr->opcode) {
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		wr->wr.atomic.remote_addr = r->remote_addr;
		wr->wr.atomic.compare_add = r->compare;
		wr->wr.atomic.swap = r->swap;
		wr->wr.atomic.rkey = r->rkey;
		return 0;
	default:
		break;
	}
	if (type != IBV_QPT_UD) {
		wr->wr.rdma.remote_addr = r->remote_addr;
		wr->wr.rdma.rkey = r->rkey;
		return 0;
	}
	if (r->handle >= UD_HANDLES)
		return UD_HANDLE;
	wr->wr.ud.ah = __atomic_load_n(&t->handles[r->handle], __ATOMIC_ACQUIRE);
	wr->wr.ud.remote_qpn = r->remote_qpn;
	wr->wr.ud.remote_qkey = r->remote_qkey;
	return wr->wr.ud.ah ? 0 : UD_HANDLE;
}

// put appends a request to the chain, whose elements are the first of sges and stay where they are. Returns 0, or why not.
static int put(struct chain *c, const struct ibv_qp *qp, const struct ud_tables *t, const struct ud_send *r, const struct ibv_sge *sges,
	       uint32_t left)
{
	struct ibv_send_wr *wr = &c->wr[c->n];
	int why;

	if (r->op > 31 || !(allowed(qp->qp_type) & 1u << r->op))
		return UD_OPERATION;
	if (r->sges > left)
		return UD_SHORT_LIST;
	memset(wr, 0, sizeof *wr);
	wr->wr_id = r->id;
	wr->sg_list = (struct ibv_sge *)sges;
	wr->num_sge = r->sges;
	wr->opcode = r->op;
	wr->send_flags = r->flags & (IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE);
	memcpy(&wr->imm_data, r->immediate, sizeof r->immediate);
	why = put_remote(wr, qp->qp_type, t, r);
	if (!why && wr->send_flags & IBV_SEND_INLINE)
		why = put_inline(c, wr, t, sges, r->sges);
	if (why)
		return why;
	if (c->n)
		wr[-1].next = wr;
	c->n++;
	return 0;
}

// refused is why libibverbs refused: most providers give errno, some negative.
static int refused(int r)
{
	return r < 0 ? -r : r;
}

// give posts the chain. A provider that refuses without saying which request it was has them all in its queue.
static struct ud_posted give(struct ibv_qp *qp, struct chain *c)
{
	struct ibv_send_wr *bad = NULL;
	int r = qp->context->ops.post_send(qp, c->wr, &bad);

	return (struct ud_posted){r && bad ? bad - c->wr : c->n, refused(r)};
}

struct ud_posted ud_post_send(uintptr_t handle, uintptr_t tables, const struct ud_send *r, uint32_t n, const struct ibv_sge *sges,
			      uint32_t left)
{
	struct ibv_qp *qp = (struct ibv_qp *)handle;
	struct ud_posted all = {0, 0}, some;
	struct chain c;

	if (qp->state < IBV_QPS_RTS)
		return (struct ud_posted){0, UD_STATE};
	do {
		int why = 0;

		for (c.n = c.inlined = 0; c.n < UD_CHAIN && all.taken + c.n < n; ) {
			const struct ud_send *next = &r[all.taken + c.n];

			why = put(&c, qp, (struct ud_tables *)tables, next, sges, left);
			if (why)
				break;
			sges += next->sges;
			left -= next->sges;
		}
		some = c.n ? give(qp, &c) : (struct ud_posted){0, 0};
		all.taken += some.taken;
		all.why = some.why ? some.why : why == FULL ? 0 : why;
	} while (!all.why && all.taken < n);
	return all;
}

// receives are requests for a receive queue, which differ only in who takes them.
struct receives {
	uint32_t n;
	struct ibv_recv_wr wr[UD_CHAIN];
};

static int put_receive(struct receives *c, const struct ud_receive *r, const struct ibv_sge *sges, uint32_t left)
{
	struct ibv_recv_wr *wr = &c->wr[c->n];

	if (r->sges > left)
		return UD_SHORT_LIST;
	*wr = (struct ibv_recv_wr){.wr_id = r->id, .sg_list = (struct ibv_sge *)sges, .num_sge = r->sges};
	if (c->n)
		wr[-1].next = wr;
	c->n++;
	return 0;
}

// post_receives posts to the shared queue where there is one, and else to the queue pair's.
static struct ud_posted post_receives(struct ibv_qp *qp, struct ibv_srq *srq, const struct ud_receive *r, uint32_t n,
				      const struct ibv_sge *sges, uint32_t left)
{
	struct ud_posted all = {0, 0};
	struct receives c;

	do {
		struct ibv_recv_wr *bad = NULL;
		int why = 0, refusal = 0;

		for (c.n = 0; c.n < UD_CHAIN && all.taken + c.n < n; ) {
			const struct ud_receive *next = &r[all.taken + c.n];

			why = put_receive(&c, next, sges, left);
			if (why)
				break;
			sges += next->sges;
			left -= next->sges;
		}
		if (c.n)
			refusal = srq ? srq->context->ops.post_srq_recv(srq, c.wr, &bad) : qp->context->ops.post_recv(qp, c.wr, &bad);
		all.taken += refusal && bad ? bad - c.wr : c.n;
		all.why = refusal ? refused(refusal) : why;
	} while (!all.why && all.taken < n);
	return all;
}

struct ud_posted ud_post_receive(uintptr_t qp, const struct ud_receive *r, uint32_t n, const struct ibv_sge *sges, uint32_t left)
{
	if (((struct ibv_qp *)qp)->state == IBV_QPS_RESET)
		return (struct ud_posted){0, UD_STATE};
	return post_receives((struct ibv_qp *)qp, NULL, r, n, sges, left);
}

struct ud_posted ud_post_shared(uintptr_t srq, const struct ud_receive *r, uint32_t n, const struct ibv_sge *sges, uint32_t left)
{
	return post_receives(NULL, (struct ibv_srq *)srq, r, n, sges, left);
}
