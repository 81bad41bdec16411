// Package peers is the sink that sends packets or messages to RDMA peers from
// where they landed, each to one peer or to several.
package peers
