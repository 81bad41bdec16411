// Package peers is the sink that sends packets or messages to RDMA peers from the frames in which
// they landed. Each goes to one peer or to several.
package peers
