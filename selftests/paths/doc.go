// Package paths tests peers and clients with several paths: real processes on several hosts, over RDMA, while paths come
// and go. Hosts are network namespaces. Two switches join them.
package paths
