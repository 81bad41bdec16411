// Package oneregion tests the main idea of the project: one region that is at the same time the
// UMEM of a network card, memory registered with an RDMA device, and the fixed buffers of an NVMe
// disk.
package oneregion
