package rdma

import "fmt"

// Status is how a work request ended: enum ibv_wc_status, with its numbers.
type Status uint32

const (
	Success                  Status = 0
	LocalLength              Status = 1
	LocalQPOperation         Status = 2
	LocalEEContext           Status = 3
	LocalProtection          Status = 4
	WorkFlushed              Status = 5
	WindowBind               Status = 6
	BadResponse              Status = 7
	LocalAccess              Status = 8
	RemoteInvalidRequest     Status = 9
	RemoteAccess             Status = 10
	RemoteOperation          Status = 11
	RetryExceeded            Status = 12
	ReceiverNotReadyExceeded Status = 13
	LocalRDDViolation        Status = 14
	RemoteInvalidRDRequest   Status = 15
	RemoteAborted            Status = 16
	InvalidEEContext         Status = 17
	InvalidEEContextState    Status = 18
	Fatal                    Status = 19
	ResponseTimeout          Status = 20
	General                  Status = 21
	statuses                        = 22
)

// statusTexts have the name of libibverbs, what it means, and what to check.
var statusTexts = [statuses]struct{ name, means, check string }{
	Success:                  {"IBV_WC_SUCCESS", "success", ""},
	LocalLength:              {"IBV_WC_LOC_LEN_ERR", "a message is longer than the receive for it, or than the transport carries", "the size of posted receives and the path MTU"},
	LocalQPOperation:         {"IBV_WC_LOC_QP_OP_ERR", "the queue pair cannot do that", "that the transport has the operation, the number of scatter/gather elements, and READs and atomics allowed at once (max_rd_atomic)"},
	LocalEEContext:           {"IBV_WC_LOC_EEC_OP_ERR", "an end-to-end context is in error", ""},
	LocalProtection:          {"IBV_WC_LOC_PROT_ERR", "local memory is not registered for this", "the lkey, and that address and length lie within its registration"},
	WorkFlushed:              {"IBV_WC_WR_FLUSH_ERR", "flushed: the queue pair was in error before", "the first error of the queue pair, which is the cause"},
	WindowBind:               {"IBV_WC_MW_BIND_ERR", "a memory window was not bound", "that the registration allows windows, and the rights asked for"},
	BadResponse:              {"IBV_WC_BAD_RESP_ERR", "the peer's answer makes no sense", "the peer"},
	LocalAccess:              {"IBV_WC_LOC_ACCESS_ERR", "the peer's WRITE with immediate was refused here", "the grant the peer used"},
	RemoteInvalidRequest:     {"IBV_WC_REM_INV_REQ_ERR", "the peer refused the request as invalid", "that its receives are long enough, that its queue pair allows the operation, and that an atomic's address is a multiple of 8"},
	RemoteAccess:             {"IBV_WC_REM_ACCESS_ERR", "the peer refused access to its memory", "the rkey, that the grant is not revoked, its rights, and that address and length lie within it"},
	RemoteOperation:          {"IBV_WC_REM_OP_ERR", "the peer could not do it", "the peer's log"},
	RetryExceeded:            {"IBV_WC_RETRY_EXC_ERR", "the peer does not answer", "that it is alive and its link is up, its queue pair number and GID, and the MTU of the path"},
	ReceiverNotReadyExceeded: {"IBV_WC_RNR_RETRY_EXC_ERR", "the peer has no receive posted", "that it posts receives as fast as it is sent to, and rnr_retry"},
	LocalRDDViolation:        {"IBV_WC_LOC_RDD_VIOL_ERR", "reliable datagram domain violation", ""},
	RemoteInvalidRDRequest:   {"IBV_WC_REM_INV_RD_REQ_ERR", "invalid reliable datagram request", ""},
	RemoteAborted:            {"IBV_WC_REM_ABORT_ERR", "the peer aborted it", "the peer's log"},
	InvalidEEContext:         {"IBV_WC_INV_EECN_ERR", "invalid end-to-end context number", ""},
	InvalidEEContextState:    {"IBV_WC_INV_EEC_STATE_ERR", "invalid end-to-end context state", ""},
	Fatal:                    {"IBV_WC_FATAL_ERR", "the device failed", "the kernel's log"},
	ResponseTimeout:          {"IBV_WC_RESP_TIMEOUT_ERR", "the peer's answer did not come in time", "the peer"},
	General:                  {"IBV_WC_GENERAL_ERR", "something else failed", "the vendor's error code and the kernel's log"},
}

func (s Status) String() string {
	if s < statuses {
		return statusTexts[s].name
	}
	return fmt.Sprintf("completion status %d", uint32(s))
}

// Meaning is a few words on what happened, and Check what to look at; both may be empty.
func (s Status) Meaning() (means, check string) {
	if s < statuses {
		return statusTexts[s].means, statusTexts[s].check
	}
	return "", ""
}

// Error makes a Status a target for errors.Is: errors.Is(err, rdma.RemoteAccess).
func (s Status) Error() string { return s.String() }

// OpError is a work request that did not end well.
type OpError struct {
	QPN         uint32
	Status      Status
	VendorError uint32
}

func (e *OpError) Error() string {
	means, check := e.Status.Meaning()
	text := fmt.Sprintf("queue pair %d: %v", e.QPN, e.Status)
	if means != "" {
		text += ": " + means
	}
	if check != "" {
		text += " (check " + check + ")"
	}
	if e.VendorError != 0 {
		text += fmt.Sprintf(" [vendor error 0x%x]", e.VendorError)
	}
	return text
}

// Unwrap is the status.
func (e *OpError) Unwrap() error { return e.Status }
