//go:build verbs && cgo

#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

// The functions of libibverbs by their versions. Older versions of the same names have
// another interface, so that dlsym would not do. 1.8 and 1.11 are of rdma-core 28 and 32.
#define FUNCTIONS(X)                                                                                                                 \
	X(get_device_list, "1.1") X(free_device_list, "1.1") X(get_device_name, "1.1") X(open_device, "1.1") X(close_device, "1.1")  \
	X(query_device, "1.1") X(query_port, "1.1") X(get_async_event, "1.1") X(ack_async_event, "1.1") X(alloc_pd, "1.1")           \
	X(dealloc_pd, "1.1") X(reg_mr, "1.1") X(dereg_mr, "1.1") X(create_comp_channel, "1.0") X(destroy_comp_channel, "1.0")        \
	X(create_cq, "1.1") X(resize_cq, "1.1") X(destroy_cq, "1.1") X(get_cq_event, "1.1") X(ack_cq_events, "1.1")                  \
	X(create_srq, "1.1") X(modify_srq, "1.1") X(destroy_srq, "1.1") X(create_qp, "1.1") X(modify_qp, "1.1")                      \
	X(query_qp, "1.1") X(destroy_qp, "1.1") X(create_ah, "1.1") X(destroy_ah, "1.1")

static struct functions {
#define FIELD(name, version) __typeof__(ibv_##name) *name;
	FUNCTIONS(FIELD)
	__typeof__(ibv_reg_mr_iova2) *reg_mr_iova2; // may be NULL
	__typeof__(_ibv_query_gid_table) *query_gid_table; // likewise
} lib;

const char *ud_load(const char *library)
{
	static char why[256];
	void *so = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	struct functions f;

	if (!so)
		return dlerror();
#define LOOK_UP(name, version)                                                                                 \
	f.name = dlvsym(so, "ibv_" #name, "IBVERBS_" version);                                                 \
	if (!f.name) {                                                                                         \
		snprintf(why, sizeof why, "%s lacks ibv_" #name " of version IBVERBS_" version, library);      \
		return why;                                                                                    \
	}
	FUNCTIONS(LOOK_UP)
	f.reg_mr_iova2 = dlvsym(so, "ibv_reg_mr_iova2", "IBVERBS_1.8");
	f.query_gid_table = dlvsym(so, "_ibv_query_gid_table", "IBVERBS_1.11");
	lib = f;
	return NULL;
}

int ud_has_iova(void)
{
	return lib.reg_mr_iova2 != NULL;
}

// result makes one kind of the two in which functions of libibverbs and of providers say errno.
static int result(int r)
{
	if (r == -1)
		return errno ? errno : EIO;
	return r < 0 ? -r : r;
}

// got is the result of a function that gives a thing or NULL.
static int got(const void *thing)
{
	if (thing)
		return 0;
	return errno ? errno : EIO;
}

static int nonblocking(int fd)
{
	return result(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK));
}

struct ibv_device **ud_get_device_list(int *n)
{
	return lib.get_device_list(n);
}

void ud_free_device_list(struct ibv_device **list)
{
	lib.free_device_list(list);
}

struct ibv_device *ud_device_at(struct ibv_device **list, int place)
{
	return list[place];
}

const char *ud_device_name(struct ibv_device *d)
{
	return lib.get_device_name(d);
}

int ud_open_device(struct ibv_device *d, struct ibv_context **c)
{
	int r;

	errno = 0;
	*c = lib.open_device(d);
	r = got(*c);
	if (r)
		return r;
	r = nonblocking((*c)->async_fd);
	if (r)
		lib.close_device(*c);
	return r;
}

int ud_close_device(struct ibv_context *c)
{
	return result(lib.close_device(c));
}

int ud_query_device(struct ibv_context *c, struct ibv_device_attr *a)
{
	return result(lib.query_device(c, a));
}

// As ___ibv_query_port in verbs.h.
int ud_query_port(struct ibv_context *c, uint8_t port, struct ibv_port_attr *a)
{
	struct verbs_context *v = verbs_get_ctx_op(c, query_port);

	memset(a, 0, sizeof *a);
	if (v)
		return result(v->query_port(c, port, a, sizeof *a));
	return result(lib.query_port(c, port, (struct _compat_ibv_port_attr *)a));
}

int64_t ud_query_gids(struct ibv_context *c, struct ibv_gid_entry *e, size_t room)
{
	return lib.query_gid_table ? lib.query_gid_table(c, e, room, 0, sizeof *e) : -ENOSYS;
}

static uint32_t number_of(const struct ibv_async_event *e)
{
	switch (e->event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return e->element.qp->qp_num;
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
	case IBV_EVENT_GID_CHANGE:
		return e->element.port_num;
	default:
		return 0;
	}
}

int ud_next_event(struct ibv_context *c, int *kind, uint32_t *number)
{
	struct ibv_async_event e;
	int r = result(lib.get_async_event(c, &e));

	if (r)
		return r;
	*kind = e.event_type;
	*number = number_of(&e);
	lib.ack_async_event(&e); // at once: destroying waits for it
	return 0;
}

int ud_alloc_pd(struct ibv_context *c, struct ibv_pd **pd)
{
	errno = 0;
	*pd = lib.alloc_pd(c);
	return got(*pd);
}

int ud_dealloc_pd(struct ibv_pd *pd)
{
	return result(lib.dealloc_pd(pd));
}

int ud_reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int at_iova, int access, struct ibv_mr **mr)
{
	errno = 0;
	if (at_iova)
		*mr = lib.reg_mr_iova2(pd, addr, length, iova, access);
	else
		*mr = (lib.reg_mr)(pd, addr, length, access);
	return got(*mr);
}

int ud_dereg_mr(struct ibv_mr *mr)
{
	return result(lib.dereg_mr(mr));
}

int ud_alloc_mw(struct ibv_pd *pd, struct ibv_mw **mw)
{
	errno = 0;
	*mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	return got(*mw);
}

int ud_dealloc_mw(struct ibv_mw *mw)
{
	return result(ibv_dealloc_mw(mw));
}

int ud_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mr *mr, uint64_t addr, uint64_t length, int access, uint64_t id,
	       int flags)
{
	struct ibv_send_wr *bad, wr = {.wr_id = id, .opcode = IBV_WR_BIND_MW, .send_flags = flags};
	int r;

	if (qp->state < IBV_QPS_RTS)
		return UD_STATE;
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){.mr = mr, .addr = addr, .length = length, .mw_access_flags = access};
	r = result(qp->context->ops.post_send(qp, &wr, &bad));
	if (!r)
		mw->rkey = wr.bind_mw.rkey;
	return r;
}

int ud_create_cq(struct ibv_context *c, int depth, int events, int vector, struct ibv_cq **cq)
{
	struct ibv_comp_channel *channel = NULL;
	int r = 0;

	errno = 0;
	if (events) {
		channel = lib.create_comp_channel(c);
		r = channel ? nonblocking(channel->fd) : got(channel);
	}
	if (!r) {
		*cq = lib.create_cq(c, depth, NULL, channel, vector);
		r = got(*cq);
	}
	if (r && channel)
		lib.destroy_comp_channel(channel);
	return r;
}

int ud_resize_cq(struct ibv_cq *cq, int depth)
{
	return result(lib.resize_cq(cq, depth));
}

int ud_destroy_cq(struct ibv_cq *cq)
{
	struct ibv_comp_channel *channel = cq->channel;
	int r = result(lib.destroy_cq(cq));

	if (!r && channel)
		r = result(lib.destroy_comp_channel(channel));
	return r;
}

int ud_acknowledge(uintptr_t handle, int most)
{
	struct ibv_cq *cq = (struct ibv_cq *)handle, *of;
	void *context;
	int n = 0;

	while (n < most && !lib.get_cq_event(cq->channel, &of, &context))
		n++;
	lib.ack_cq_events(cq, n); // at once: destroying waits for it
	return n;
}

int ud_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *a, struct ibv_srq **srq)
{
	errno = 0;
	*srq = lib.create_srq(pd, a);
	return got(*srq);
}

int ud_limit_srq(struct ibv_srq *srq, uint32_t limit)
{
	struct ibv_srq_attr a = {.srq_limit = limit};

	return result(lib.modify_srq(srq, &a, IBV_SRQ_LIMIT));
}

int ud_destroy_srq(struct ibv_srq *srq)
{
	return result(lib.destroy_srq(srq));
}

int ud_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a, struct ibv_qp **qp)
{
	errno = 0;
	*qp = lib.create_qp(pd, a);
	return got(*qp);
}

int ud_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	return result(lib.modify_qp(qp, a, mask));
}

int ud_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *i)
{
	return result(lib.query_qp(qp, a, mask, i));
}

int ud_destroy_qp(struct ibv_qp *qp)
{
	return result(lib.destroy_qp(qp));
}

int ud_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *a, struct ibv_ah **ah)
{
	errno = 0;
	*ah = lib.create_ah(pd, a);
	return got(*ah);
}

int ud_destroy_ah(struct ibv_ah *ah)
{
	return result(lib.destroy_ah(ah));
}
