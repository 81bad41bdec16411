// Package nvme compares the NVMe over Fabrics target of unifiedd with the kernel's, nvmet-rdma.
//
// Both serve the same disk of the lab guest on the same Soft-RoCE device, to the guest's own initiator, and both are connected all the time. For each case
// there is one fio for each target; one of them is stopped (SIGSTOP) while the other runs, so that nothing that is measured is a start.
//
// Compared are the bytes that went through the host's block device, and the time for which the guest's processors were not idle: initiator, target,
// Soft-RoCE, disk and fio, which are the same on both sides but for the target.
//
// All is in tests for the lab (make lab-bench RUN=Nvmet).
package nvme
