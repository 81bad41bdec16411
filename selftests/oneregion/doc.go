// Package oneregion tests the main idea of the project: one region is the UMEM of a network card,
// memory registered with an RDMA device, and the fixed buffers of an NVMe disk, all at the same
// time.
package oneregion
