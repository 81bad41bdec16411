package flows

import (
	"testing"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/captures"
)

// The tests of this package capture from one end of a veth pair. Here they capture from cards instead, once
// for each form of card, with what the kernel grants that form. Packets have the MTU that cards have with a
// program, flows use as many queues as the card has, and each form uses one layout.

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

// cardTests are the tests that also run on cards, layoutTests those that run once for each of layouts. The others use no
// interface, or have their own wires, or are about what the kernel copies, a reload or RDMA, which are the same whatever
// the card.
var (
	layoutTests = []func(*testing.T){
		TestSameAsTcpdump, TestFilterLeavesTheRest, TestLiveFile, TestTimesAndStatistics, TestPollAllocatesNothing,
		TestCountTakesExactly, TestCaptureEveryPacket, TestRingWrapsAround, TestSlowDisk, TestWatermarksOfACapture,
		TestCopiesAreCounted, TestNoPoisonReachesTheDisk,
	}
	cardTests = []func(*testing.T){
		TestSlotIsWrittenFromWhereItLanded, TestTimestamps,
		TestNetworkToNull, TestHere,
		TestEveryWaitCapturesEverything, TestStreamIsTheFile, TestStreamThatBreaks, TestFlowsDoNotDisturbEachOther,
		TestRotateBySize, TestRotateByTime, TestKeep, TestHeldFiles, TestExact, TestDurable, TestRingGoesOn,
		TestLedgerInOverload, TestLongOverload, TestLedgerWithASlowStream, TestLostWhileFull, TestLostToAnError,
		TestPollWhileStuck, TestDiskError, TestDeviceOutOfRoom, TestDiskFullAtStart, TestDiskFull, TestStopWhileFull,
		TestInterfaceDown, TestInterfaceRenamed, TestInterfaceMoved, TestProgramDetached, TestCannotStart, TestDefaultRoute,
		TestLongFilter,
	}
)

func onCards(t *testing.T, form labenv.Form) {
	testenv.Long(t, "make lab runs these; TestCardToDisk stands for them")
	labenv.Modules(t, "loop", "zram", "veth")
	form.Instead(t)
	before, all := granted, layouts
	t.Cleanup(func() { granted, layouts = before, all })
	granted.cards, layouts = true, []string{"slot"}
	// A virtio card makes its peer wait while there is no frame for the next packet. An emulated igb card
	// with several queues drops packets for a full queue and does not count them. For an igb card with a
	// single queue, see testenv.End.Deepen.
	granted.zeroCopy, granted.offered, granted.patient, granted.overloaded = form.ZeroCopy(t), form.Offers(t), form.Waits(t), 1
	delete(captures.StandardReaders, "tshark") // starts in half a minute; other tests read such files with it
	if form.Copy {
		layouts = []string{"packed"}
		granted.policy = config.ZeroCopyCopy
	}
	labenv.Each(t, leftOut(form), layoutTests...)
	// Without zero copy, the forms of igb differ only in the layout.
	if form.Copy || form.Name == labenv.VirtioZeroCopy.Name || granted.zeroCopy {
		labenv.Each(t, leftOut(form), cardTests...)
	}
}

// leftOut returns why a form leaves a test out.
func leftOut(form labenv.Form) func(name string) string {
	return func(name string) string {
		if name == "FromIperf3" && form.Name != labenv.VirtioZeroCopy.Name {
			return "an igb card that is given a program has no link for a moment, and what is on the wire is counted nowhere"
		}
		return ""
	}
}
