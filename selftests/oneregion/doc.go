// Package oneregion has the test of what the project is for: one region that is, at the
// same time, where a network card puts its packets, memory registered with an RDMA
// device, and the buffers of an NVMe disk.
package oneregion
