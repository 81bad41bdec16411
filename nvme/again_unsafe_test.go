package nvme

import "unsafe"

// registerIOWQMaxWorkers is IORING_REGISTER_IOWQ_MAX_WORKERS.
const registerIOWQMaxWorkers = 19

// limitWorkers sets the most threads the kernel has at work for the calling thread, of
// those that files and disks bound and of others.
func (r *ring) limitWorkers(bound, others uint32) error {
	limits := [2]uint32{bound, others}
	return r.register(registerIOWQMaxWorkers, unsafe.Pointer(&limits), uint32(len(limits)))
}
