package rdma

import (
	"errors"
	"fmt"
)

// Mask says which fields of Attributes are given: enum ibv_qp_attr_mask.
type Mask uint32

const (
	MaskState          Mask = 1 << 0
	MaskCurrentState   Mask = 1 << 1
	MaskAccess         Mask = 1 << 3
	MaskPKeyIndex      Mask = 1 << 4
	MaskPort           Mask = 1 << 5
	MaskQKey           Mask = 1 << 6
	MaskAddress        Mask = 1 << 7
	MaskPathMTU        Mask = 1 << 8
	MaskTimeout        Mask = 1 << 9
	MaskRetries        Mask = 1 << 10
	MaskRNRRetries     Mask = 1 << 11
	MaskReceivePSN     Mask = 1 << 12
	MaskMaxReads       Mask = 1 << 13
	MaskMinRNRTimer    Mask = 1 << 15
	MaskSendPSN        Mask = 1 << 16
	MaskMaxRemoteReads Mask = 1 << 17
	MaskRemoteQPN      Mask = 1 << 20
	maskNames               = "STATE CUR_STATE EN_SQD_ASYNC_NOTIFY ACCESS_FLAGS PKEY_INDEX PORT QKEY AV PATH_MTU TIMEOUT RETRY_CNT RNR_RETRY RQ_PSN MAX_QP_RD_ATOMIC ALT_PATH MIN_RNR_TIMER SQ_PSN MAX_DEST_RD_ATOMIC PATH_MIG_STATE CAP DEST_QPN"
)

// Attributes are what changes when a queue pair goes from one state to another:
// struct ibv_qp_attr.
type Attributes struct {
	State        State
	CurrentState State
	Access       Access // what the peer may do
	PKeyIndex    uint16
	Port         uint8
	QKey         uint32 // of datagrams
	Address      Address
	PathMTU      MTU
	Timeout      uint8  // for an acknowledgement: 4.096 µs << Timeout; 0 waits for ever
	Retries      uint8  // at most 7, before RetryExceeded
	RNRRetries   uint8  // before ReceiverNotReadyExceeded; 7 goes on for ever
	MinRNRTimer  uint8  // what a sender is told to wait for our receives, IBTA table 45
	SendPSN      uint32 // 24 bits
	ReceivePSN   uint32 // the peer's SendPSN
	RemoteQPN    uint32
	// MaxReads is how many READs and atomics of ours may be outstanding, MaxRemoteReads how many of the peer's.
	MaxReads, MaxRemoteReads uint8
}

// CheckRanges refuses numbers that do not fit their fields of a packet or of the device. Some of them are
// a peer's. A provider asks it before the device.
func (a *Attributes) CheckRanges(given Mask) error {
	const mask24 = 1<<24 - 1
	var errs []error
	for _, f := range []struct {
		of        Mask
		name      string
		got, most uint32
	}{
		{MaskRemoteQPN, "RemoteQPN", a.RemoteQPN, mask24}, {MaskSendPSN, "SendPSN", a.SendPSN, mask24},
		{MaskReceivePSN, "ReceivePSN", a.ReceivePSN, mask24}, {MaskTimeout, "Timeout", uint32(a.Timeout), 31},
		{MaskRetries, "Retries", uint32(a.Retries), 7}, {MaskRNRRetries, "RNRRetries", uint32(a.RNRRetries), 7},
		{MaskMinRNRTimer, "MinRNRTimer", uint32(a.MinRNRTimer), 31},
	} {
		if given&f.of != 0 && f.got > f.most {
			errs = append(errs, fmt.Errorf("%s %#x: the most is %#x", f.name, f.got, f.most))
		}
	}
	return errors.Join(errs...)
}

// Address is the way to a peer: struct ibv_ah_attr.
type Address struct {
	GID          GID // of the peer; zero: by LID alone, on one InfiniBand subnet
	GIDIndex     uint8
	HopLimit     uint8
	TrafficClass uint8
	FlowLabel    uint32 // 20 bits
	LID          uint16 // of the peer, on InfiniBand
	SL           uint8
	PathBits     uint8
	StaticRate   uint8
	Port         uint8 // of ours
}
