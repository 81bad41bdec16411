package flows

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
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

// cardTest is a test that also runs on cards.
type cardTest struct {
	name string
	run  func(*testing.T)
}

var cardTests = []cardTest{
	{"SlotIsWrittenFromWhereItLanded", TestSlotIsWrittenFromWhereItLanded},
	{"SameAsTcpdump", TestSameAsTcpdump},
	{"FilterLeavesTheRest", TestFilterLeavesTheRest},
	{"LiveFile", TestLiveFile},
	{"TimesAndStatistics", TestTimesAndStatistics},
	{"Timestamps", TestTimestamps},
	{"CaptureEveryPacket", TestCaptureEveryPacket},
	{"CopiesAreCounted", TestCopiesAreCounted},
	{"NoPoisonReachesTheDisk", TestNoPoisonReachesTheDisk},
	{"PollAllocatesNothing", TestPollAllocatesNothing},

	{"NetworkToNull", TestNetworkToNull},
	{"Here", TestHere},
	{"WatermarksOfACapture", TestWatermarksOfACapture},

	{"EveryWaitCapturesEverything", TestEveryWaitCapturesEverything},
	{"CountTakesExactly", TestCountTakesExactly},
	{"StreamIsTheFile", TestStreamIsTheFile},
	{"StreamThatBreaks", TestStreamThatBreaks},
	{"FlowsDoNotDisturbEachOther", TestFlowsDoNotDisturbEachOther},

	{"FromPing", TestFromPing},
	{"FromTrafgen", TestFromTrafgen},
	{"FromTcpreplay", TestFromTcpreplay},
	{"FromIperf3", TestFromIperf3},
	{"FromTestpmd", TestFromTestpmd},

	{"RotateBySize", TestRotateBySize},
	{"RotateByTime", TestRotateByTime},
	{"Keep", TestKeep},
	{"HeldFiles", TestHeldFiles},
	{"Exact", TestExact},
	{"Durable", TestDurable},
	{"SlowDisk", TestSlowDisk},
	{"Devices", TestDevices},
	{"RingWrapsAround", TestRingWrapsAround},
	{"RingGoesOn", TestRingGoesOn},

	{"LedgerInOverload", TestLedgerInOverload},
	{"LongOverload", TestLongOverload},
	{"LedgerWithASlowStream", TestLedgerWithASlowStream},
	{"LostWhileFull", TestLostWhileFull},
	{"LostToAnError", TestLostToAnError},
	{"PollWhileStuck", TestPollWhileStuck},
	{"DiskError", TestDiskError},
	{"DeviceOutOfRoom", TestDeviceOutOfRoom},
	{"DiskFullAtStart", TestDiskFullAtStart},
	{"DiskFull", TestDiskFull},
	{"StopWhileFull", TestStopWhileFull},

	{"InterfaceDown", TestInterfaceDown},
	{"InterfaceRenamed", TestInterfaceRenamed},
	{"InterfaceMoved", TestInterfaceMoved},
	{"ProgramDetached", TestProgramDetached},
	{"CannotStart", TestCannotStart},
	{"DefaultRoute", TestDefaultRoute},
	{"LongFilter", TestLongFilter},
}

// notOnIgb are the tests left out for the forms of igb, each with its reason.
var notOnIgb = map[string]string{
	"FromIperf3": "an igb card that is given a program has no link for a moment, and what is on the wire is counted nowhere",
}

// notOnCards are the tests that do not run on cards, each with its reason.
var notOnCards = map[string]string{
	"PassiveEveryPacket": ofSockets, "PassiveSameAsTcpdump": ofSockets, "PassivePoison": ofSockets, "PassiveRefilter": ofSockets, "PassiveInterface": ofSockets,
	"PassiveOverload": ofSockets, "PassiveDiskFull": ofSockets, "PassiveDirections": ofSockets, "PassiveCount": ofSockets, "PassiveOffloads": ofSockets, "PassiveLoopback": ofSockets, "PassiveFilters": ofSockets, "PassiveAuto": ofSockets, "PassiveSnaplen": ofSockets, "PassiveBegunDown": ofSockets, "PassiveTimestamps": ofSockets, "PassiveLargeRing": ofSockets, "PassiveFanout": ofSockets, "PassivePollAllocatesNothing": ofSockets,
	"InterfaceRemoved": "a card is not removed as a veth pair is; TestFunction takes one away", "RDMAInterfaceRemoved": "TestFunctionOfRDMA takes a card away",
	"PacketsOfManyFrames": "no card has an MTU of 65535",
	"LargeRegion":         "the guest has not 5 GiB",
	"Mirror":              ofTheHost, "MirrorOffloads": ofTheHost, "MirrorLoopback": ofTheHost, "MirrorGone": ofTheHost,
	"StatisticsOfManyQueues": "no card here has 40 queues",

	"Join": manyWires, "JoinRefused": ofReload, "Mold": ofFeeds, "FeedLines": ofFeeds, "FeedToStorage": ofFeeds, "FeedRefusesDamage": ofFeeds, "FeedAllocatesNothing": ofFeeds, "Orders": ofOrders, "OrdersStop": ofOrders, "OrdersLastReplies": ofOrders, "OrdersLingers": ofOrders, "OrdersGiven": ofOrders,
	"OrderRules": ofOrders, "OrderRulesHostile": ofOrders, "OrderRulesLogin": ofOrders, "OrderRulesGiven": ofOrders, "MoldToPeers": ofPeers, "ClockWatch": noInterface, "Reachable": noInterface,
	"HugePagesExhausted": noInterface, "AwaitClosed": noInterface, "SeatsOfInterface": noInterface,

	"Beside": inOrder, "BesideTheFirst": inOrder, "BesideWhoIsStuck": inOrder, "BesideOrder": ofReload, "BesideRefused": ofReload, "BesideAFeed": ofPeers,
	"Refilter": inOrder, "RefilterBeside": manyWires, "RefilterKeepsTheHost": ofReload, "OwnProgram": ofReload, "Rules": ofReload, "ObjectChanges": ofReload,
	"Reload": manyWires, "ReloadRefused": manyWires, "ReloadRollsBack": manyWires, "ReloadBroken": manyWires, "ReloadOneAtATime": manyWires, "ReloadMakesRoom": manyWires, "ReloadWhileClosing": manyWires,

	"Log": ofPeers, "LogGoesOn": ofPeers, "LogRot": ofPeers, "LogWritten": ofPeers, "LogOfLongMessages": ofPeers, "LogFullDisk": ofPeers, "LogDiskError": ofPeers, "LogAllocatesNothing": ofPeers,
	"WhereItLanded": "TestWhereItLandedOnVerbs runs it there", "Feed": ofPeers, "Class": ofPeers, "Identity": ofPeers, "IdleConnections": ofPeers, "Blocks": ofPeers, "Relay": ofPeers, "Sum": ofPeers, "SumRejects": ofPeers, "SumRestart": ofPeers, "SessionOfAnother": ofPeers, "DefaultsStart": ofPeers, "Needs": ofPeers, "GrantBytes": ofPeers,
	"RingWhileAway": "a card loses what comes while its own ring is full", "Floor": noInterface, "RingSpan": noInterface, "FloorOfOneFile": noInterface, "Owner": noInterface,
	"HereHeld": "a card loses what finds no frame, and does not always count it", "HereLong": "no card here has packets of several frames with zero copy", "HereAllocatesNothing": "PollAllocatesNothing runs there",
	"NullToStorage": noInterface, "NullAllocatesNothing": noInterface, "NoteLosses": noInterface, "RecorderAcrossRuns": noInterface,
	"Replay": sends, "ReplayInPlace": sends, "ReplayReasons": sends, "ReplayDamaged": sends, "ReplayLive": sends, "ReplayStops": sends, "ReplayLinkDown": sends, "ReplayAllocatesNothing": sends,
	"ReplayFormats":    sends,
	"RingTellsOfHeads": noInterface,
	"NullToPeers":      ofPeers, "SubsystemGoesOn": ofPeers, "ReloadRevokesCertificate": ofPeers, "ReloadReadsKeys": ofPeers, "RDMAToNull": ofPeers, "WatermarksOfAFeed": ofPeers, "WatermarksOfMessages": ofPeers,
}

const (
	sends       = "tcpdump sees at the other end what is sent, which on cards the tests of package xdp compare (Lent)"
	noInterface = "it uses no interface"
	ofFeeds     = "its lines are sockets of the kernel at both ends, and messages look the same whatever the card"
	ofOrders    = "what leaves looks the same whatever the card, and the tests of package xdp send on cards"
	ofReload    = "what it reloads does not say the policy that a form of cards runs with"
	inOrder     = "it knows which packets were judged before a reload from one wire with one queue"
	ofTheHost   = "copies are taken from the host, whatever the card, and arrive on a veth pair"
	ofSockets   = "a packet socket has copies of the kernel, which look the same whatever the card"
	manyWires   = "it makes wires beside the one it captures from; what flows do there as they stop and start the other tests have"
	ofPeers     = "its RDMA is RoCE in software on a veth pair of its own; packages stream and blocks run over the guest's RDMA device"
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
	again := map[string]testFunction{}
	if !form.Copy && form.Name != labenv.VirtioZeroCopy.Name && !granted.zeroCopy {
		again = testFunctions(t)
	}
	for _, c := range cardTests {
		why := notOnIgb[c.name]
		if form.Name == labenv.VirtioZeroCopy.Name {
			why = ""
		}
		if f, is := again[c.name]; is && !f.layouts && why == "" {
			why = sameAsCopy
		}
		if why != "" {
			t.Logf("%s is left out: %s", c.name, why)
			continue
		}
		t.Run(c.name, c.run)
	}
}

// sameAsCopy is why a test is left out: without zero copy, the forms of igb differ only in the layout.
const sameAsCopy = "this kernel has no zero copy on igb, so that it is the same in TestOnIgbCopy"

// testFunction is a test of the package.
type testFunction struct {
	file    string
	layouts bool // it runs once for each of layouts
}

var functions = regexp.MustCompile(`(?ms)^func Test(\w+)\(t \*testing\.T\) \{$(.*?)^\}`)

// testFunctions returns the tests that are not only for the lab, by their names without Test.
func testFunctions(t *testing.T) map[string]testFunction {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]testFunction{}
	for _, file := range files {
		if matched, _ := filepath.Match("*_lab_test.go", file); matched {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range functions.FindAllSubmatch(text, -1) {
			all[string(m[1])] = testFunction{file, bytes.Contains(m[2], []byte("range layouts"))}
		}
	}
	return all
}

// TestCardsLeaveNothingOut: each test of the package runs on cards or is listed with a reason why not.
func TestCardsLeaveNothingOut(t *testing.T) {
	labenv.Guest(t)
	named := map[string]bool{}
	for _, c := range cardTests {
		named[c.name] = true
	}
	for name := range notOnCards {
		named[name] = true
	}
	functions := testFunctions(t)
	for name, f := range functions {
		if !named[name] {
			t.Errorf("%s: Test%s is neither run on cards nor left out with a reason", f.file, name)
		}
	}
	for name := range named {
		if _, is := functions[name]; !is {
			t.Errorf("Test%s is listed and does not exist", name)
		}
	}
}
