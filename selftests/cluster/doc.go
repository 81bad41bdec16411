// Package cluster tests daemons that find one another in etcd: real processes on several hosts, over RDMA, under
// traffic. Hosts are network namespaces at a switch. Debian's etcd runs on one of them.
package cluster
