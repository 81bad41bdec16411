package wire

const (
	minSourcePort = 0xc000
	portBits      = 14
)

// SourcePort returns the UDP source port of packets between two queue pairs, the same in both
// directions, 0xc000 to 0xffff. Routers and cards use it to spread packets over paths and queues.
// flowLabel is that of the path, 0 if it has none. rdma_get_udp_sport in include/rdma/ib_verbs.h.
func SourcePort(flowLabel, localQPN, remoteQPN uint32) uint16 {
	if flowLabel == 0 {
		flowLabel = flowLabelOf(localQPN, remoteQPN)
	}
	low, high := flowLabel&(1<<portBits-1), flowLabel&flowLabelMask>>portBits
	return uint16(low^high) | minSourcePort
}

// flowLabelOf is rdma_calc_flow_label.
func flowLabelOf(localQPN, remoteQPN uint32) uint32 {
	v := uint64(localQPN) * uint64(remoteQPN)
	v ^= v >> 20
	v ^= v >> 40
	return uint32(v) & flowLabelMask
}
