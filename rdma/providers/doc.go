// Package providers opens an RDMA device by the name that users give it. "roce:eth1" is RoCE v2 in
// software on interface eth1 (package rdma/roce). Any other name is that of a device of libibverbs
// (package rdma/verbs).
package providers
