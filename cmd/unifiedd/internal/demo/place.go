package demo

import (
	"fmt"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/netnsdir"
)

// Place is the environment of the five flows. The demo makes one of namespaces, RoCE in software
// and files. A test in the lab makes one of cards, kernel verbs and NVMe disks.
type Place struct {
	Files    string // directory for the configuration and other files of the demo
	Programs string // path of the namespace of the programs that use RDMA; empty: that of the process
	Senders  string // path of the namespace of the program that sends packets
	Daemon   string // path of the namespace of the daemon
	Unifiedd string // the program; empty: this one

	Region, PeerRegion config.Size // of the daemon, and of the programs
	RegionDevice       string      // device-DAX device of the daemon's region; empty: huge pages
	Ring               int         // frames in each receive ring of an interface that receives packets

	Captured, Fed     string // interfaces that receive packets
	CapturedAt, FedAt string // host and port that the packets are sent to
	Device            string // the daemon's RDMA device
	PeerDevice        string // the RDMA device of the programs
	Host, PeerHost    string // the addresses of both

	Capture, WAL, Blocks Disk

	// Rates per second: packets to each of two flows, messages to each of two, requests.
	PacketRate, MessageRate, BlockRate int
	BlockBytes                         uint64 // bytes of the served blocks
	IdleTimeout                        string // of the sink, after the last packet
}

// Disk is where a flow writes or reads.
type Disk struct {
	Flow string // as in the configuration: file: PATH or device: PATH
	Path string // path that other programs use
	Ring bool   // it is a device with a ring
}

// fileDisk returns a file, or a prefix of file names.
func fileDisk(path string) Disk { return Disk{Flow: fmt.Sprintf("file: %q", path), Path: path} }

// DeviceDisk returns a device. Other programs may find it under another name, as for an NVMe disk
// that the flow opens by its node for commands.
func DeviceDisk(node, path string) Disk {
	return Disk{Flow: fmt.Sprintf("device: %q", node), Path: path, Ring: true}
}

// place returns the place of the demo.
func (s *stage) place() Place {
	in := func(name string) string { return s.dir + "/" + name }
	return Place{
		Files: s.dir, Programs: netnsdir.Path(s.a.name), Senders: netnsdir.Path(s.a.name), Daemon: netnsdir.Path(s.b.name),
		Region: fiveRegion, PeerRegion: peerRegion, Ring: 2048,
		Captured: captured.name, Fed: fed.name, CapturedAt: captured.at(receivingEnd, port), FedAt: fed.at(receivingEnd, port),
		Device: "roce:" + remote.name, PeerDevice: "roce:" + remote.name, Host: remote.ip(receivingEnd).String(), PeerHost: remote.ip(sendingEnd).String(),
		Capture: fileDisk(in("five-capture")), WAL: fileDisk(in("five-wal")), Blocks: fileDisk(in("blocks")),
		PacketRate: 3000, MessageRate: 2000, BlockRate: 1000, BlockBytes: 32 << 20, IdleTimeout: "4s",
	}
}
