// Package providers opens an RDMA device by the name that users give it, whichever provider has
// it: "roce:eth1" is RoCE v2 in software on interface eth1 (package rdma/roce), and any other name
// is that of a device of libibverbs (package rdma/verbs).
package providers
