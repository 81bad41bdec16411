package rdma

import "golang.org/x/sys/unix"

// Errno is how a frame says the status, see umem.Frame.Err. The cause of a queue pair's
// failure says more: Port.Cause.
func (s Status) Errno() unix.Errno {
	switch s {
	case Success:
		return 0
	case WorkFlushed:
		return unix.ECANCELED
	case LocalLength:
		return unix.EMSGSIZE
	case LocalProtection, LocalAccess:
		return unix.EFAULT
	case LocalQPOperation, RemoteInvalidRequest:
		return unix.EINVAL
	case RemoteAccess:
		return unix.EACCES
	case RetryExceeded, ResponseTimeout:
		return unix.ETIMEDOUT
	case ReceiverNotReadyExceeded:
		return unix.ENOBUFS
	case RemoteOperation, RemoteAborted:
		return unix.EREMOTEIO
	}
	return unix.EIO
}
