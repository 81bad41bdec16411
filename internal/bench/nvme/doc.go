// Package nvme compares the NVMe over Fabrics target of unifiedd with the kernel's, nvmet-rdma.
//
// Both serve the same disk of the lab guest on the same Soft-RoCE device, to the guest's own initiator, and
// both stay connected. Each case has one fio for each target. One fio is stopped (SIGSTOP) while the other
// runs, so that no measurement includes a start.
//
// The comparison has the bytes that went through the host's block device, and the time for which the guest's
// processors were not idle. That covers initiator, target, Soft-RoCE, disk and fio; only the target differs.
//
// All code is in tests for the lab (make lab-bench RUN=Nvmet).
package nvme
