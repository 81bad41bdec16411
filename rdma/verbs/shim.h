// What Go calls. Requests come as rdma's types are laid out, which have no pointers;
// completions go to memory of rdma's type, which is struct ibv_wc.
#ifndef UNIFIEDD_VERBS_SHIM_H
#define UNIFIEDD_VERBS_SHIM_H

#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdlib.h>

// rdma.SendRequest
struct ud_send {
	uint64_t id;
	uint32_t op, flags, sges;
	uint8_t immediate[4];
	uint64_t remote_addr;
	uint32_t rkey, remote_qpn, remote_qkey, handle;
	uint64_t compare, swap;
};

// rdma.ReceiveRequest
struct ud_receive {
	uint64_t id;
	uint32_t sges, unused;
};

// Why a request was not given to the device, beside an errno.
enum ud_refused {
	UD_SHORT_LIST = -1,   // it has more elements than are left of the list
	UD_OPERATION = -2,    // the transport has not this operation
	UD_HANDLE = -3,	      // no address handle has this number
	UD_INLINE_MEMORY = -4, // inline data lies in no registration of its lkey
	UD_STATE = -5	      // not in the state the queue pair is in
};

// How far a batch came: how many requests the device took, and why no more: an errno,
// an ud_refused, or 0.
struct ud_posted {
	uint32_t taken;
	int32_t why;
};

enum { UD_HANDLES = 1 << 16, UD_MEMORIES = 64 };

// A registration as inline data needs it, whose bytes libibverbs itself reads.
struct ud_memory {
	uint32_t used, lkey;
	uint64_t first, length; // as scatter/gather elements have it
	uint64_t base;		// where the first byte is mapped
};

// What a domain's queue pairs look up while they post. An entry is set before its number
// or key is known to anybody, and cleared before it is void.
struct ud_tables {
	struct ibv_ah *handles[UD_HANDLES];
	struct ud_memory memories[UD_MEMORIES];
};

void ud_set_handle(struct ud_tables *t, uint32_t id, struct ibv_ah *ah);
void ud_set_memory(struct ud_tables *t, uint32_t place, struct ud_memory m);

// The data path. None of these calls a function of libibverbs: they go through the
// operations of the context, inline in verbs.h.

struct ud_posted ud_post_send(uintptr_t qp, uintptr_t tables, const struct ud_send *r, uint32_t n, const struct ibv_sge *sges,
			      uint32_t left);
struct ud_posted ud_post_receive(uintptr_t qp, const struct ud_receive *r, uint32_t n, const struct ibv_sge *sges, uint32_t left);
struct ud_posted ud_post_shared(uintptr_t srq, const struct ud_receive *r, uint32_t n, const struct ibv_sge *sges, uint32_t left);
int ud_poll(uintptr_t cq, struct ibv_wc *wc, int n);
int ud_spin(uintptr_t cq, struct ibv_wc *wc, int n, uint32_t nanoseconds);
int ud_arm(uintptr_t cq, int solicited);
int ud_acknowledge(uintptr_t cq, int most);

// The library. ud_load returns NULL, or why there is none. Those below return 0, or an errno.
const char *ud_load(const char *library);
int ud_has_iova(void); // there is ibv_reg_mr_iova2
struct ibv_device **ud_get_device_list(int *n); // NULL with errno
void ud_free_device_list(struct ibv_device **list);
struct ibv_device *ud_device_at(struct ibv_device **list, int place);
const char *ud_device_name(struct ibv_device *d);
int ud_open_device(struct ibv_device *d, struct ibv_context **c);
int ud_close_device(struct ibv_context *c);
int ud_query_device(struct ibv_context *c, struct ibv_device_attr *a);
int ud_query_port(struct ibv_context *c, uint8_t port, struct ibv_port_attr *a);
// Returns how many GIDs of all ports there are, or an errno below zero.
int64_t ud_query_gids(struct ibv_context *c, struct ibv_gid_entry *e, size_t room);
// The number is that of the queue pair or port the event is of.
int ud_next_event(struct ibv_context *c, int *kind, uint32_t *number);
int ud_alloc_pd(struct ibv_context *c, struct ibv_pd **pd);
int ud_dealloc_pd(struct ibv_pd *pd);
int ud_reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int at_iova, int access, struct ibv_mr **mr);
int ud_dereg_mr(struct ibv_mr *mr);
int ud_alloc_mw(struct ibv_pd *pd, struct ibv_mw **mw);
int ud_dealloc_mw(struct ibv_mw *mw);
int ud_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mr *mr, uint64_t addr, uint64_t length, int access, uint64_t id,
	       int flags);
int ud_create_cq(struct ibv_context *c, int depth, int events, int vector, struct ibv_cq **cq);
int ud_resize_cq(struct ibv_cq *cq, int depth);
int ud_destroy_cq(struct ibv_cq *cq);
int ud_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *a, struct ibv_srq **srq);
int ud_limit_srq(struct ibv_srq *srq, uint32_t limit);
int ud_destroy_srq(struct ibv_srq *srq);
int ud_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a, struct ibv_qp **qp);
int ud_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask);
int ud_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *i);
int ud_destroy_qp(struct ibv_qp *qp);
int ud_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *a, struct ibv_ah **ah);
int ud_destroy_ah(struct ibv_ah *ah);

#endif
