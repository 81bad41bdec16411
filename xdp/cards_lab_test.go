package xdp

import (
	"slices"
	"testing"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// The tests of this package receive and send at the ends of a veth pair. Here they run on cards, in
// each form, with what the kernel grants it.

func TestOnIgbZeroCopy(t *testing.T) {
	labenv.Guest(t)
	onCards(t, labenv.IgbZeroCopy)
}

func TestOnIgbCopy(t *testing.T) {
	labenv.Guest(t)
	onCards(t, labenv.IgbCopy)
}

func TestOnVirtioNet(t *testing.T) {
	labenv.Guest(t)
	onCards(t, labenv.VirtioZeroCopy)
}

// cardTests are the tests that also run on cards. The others are about packets of several frames, which no card here has,
// about what the kernel copies, about what is not the card's, or choose the queue of a packet.
var cardTests = []func(*testing.T){
	TestReceive, TestSinglePacket, TestFilter, TestStartStop, TestTimestamps, TestPollReceive, TestUpperRegion,
	TestUnstamped,
	TestSend, TestSendTcpdump, TestBidirectional, TestInvalidDescriptors, TestPollSend, TestLent, TestLentSendsOnly,
	TestOtherDirection, TestRingSizes, TestNoAllocations,
	TestTeardown, TestCloseTwice, TestCloseFlushes, TestCloseWhileDown, TestConcurrentControl,
	TestNothingWritesAfterClose, TestProbe,
	TestRingFull, TestNoFrames, TestOverload, TestLedgerAfterClose, TestLedgerWhileClosing,
	TestConfigMistakes, TestWorkersPerQueue, TestTwoShapes, TestBusyQueue, TestInterfaceDown, TestInterfaceRenamed,
	TestCheckWhileExchanging, TestProgramCleanup, TestForeignProgram, TestLinkDetached, TestOwnProgram, TestPromiscuous,
	TestTagsAreKept, TestPortContract,
	TestShare, TestShareRefused, TestShareNoAllocations,
}

// again are the tests that depend on how sockets are bound. They run in both forms of igb even if
// the kernel has no zero copy for it. The other tests would do the same in both.
var again = []string{
	"Receive", "Timestamps", "Send", "Bidirectional", "Teardown", "CloseTwice", "Probe", "ConfigMistakes", "BusyQueue", "OwnProgram",
}

// leftOut returns why a form leaves a test out, or nothing.
func leftOut(name string, form labenv.Form, zeroCopy bool) string {
	igb := form.Name == labenv.IgbZeroCopy.Name
	switch {
	case igb && !zeroCopy && !slices.Contains(again, name):
		return "this kernel has no zero copy on igb, so that it is the same in TestOnIgbCopy"
	case igb && zeroCopy && slices.Contains([]string{"UpperRegion", "PortContract", "WorkersPerQueue"}, name): // they know each frame that is in the port
		return "other frames are in the port, its reserve (reserve.go)"
	case name == "NoFrames" && zeroCopy:
		return "igb is never without frames, and a virtio card has its fellow wait"
	case name == "WorkersPerQueue" && form.Queues < 2:
		return "the card has one queue"
	}
	return ""
}

func onCards(t *testing.T, form labenv.Form) {
	testenv.Long(t, "make lab runs these; TestZeroCopy stands for them")
	labenv.Modules(t, "veth")
	form.Instead(t)
	t.Cleanup(func() { policy = Prefer })
	if form.Copy {
		policy = Copy
	}
	labenv.Each(t, func(name string) string { return leftOut(name, form, form.ZeroCopy(t)) }, cardTests...)
}
