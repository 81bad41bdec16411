//go:build lab

package xdp

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// The tests of this package receive and send at the ends of a veth pair. Here they do
// on cards, in each form there is, with what the kernel grants it.

func TestOnIgbZeroCopy(t *testing.T) { onCards(t, labenv.IgbZeroCopy) }

func TestOnIgbCopy(t *testing.T) { onCards(t, labenv.IgbCopy) }

func TestOnVirtioNet(t *testing.T) { onCards(t, labenv.VirtioZeroCopy) }

// cardTest is a test that also runs on cards.
type cardTest struct {
	name string
	run  func(*testing.T)
	not  string // why not with zero copy, or nothing
}

var cardTests = []cardTest{
	{"Receive", TestReceive, ""},
	{"SinglePacket", TestSinglePacket, ""},
	{"Filter", TestFilter, ""},
	{"StartStop", TestStartStop, ""},
	{"Timestamps", TestTimestamps, ""},
	{"PollReceive", TestPollReceive, ""},
	{"UpperRegion", TestUpperRegion, "other frames are in the reserve"},
	{"Unstamped", TestUnstamped, ""},

	{"Send", TestSend, ""},
	{"SendTcpdump", TestSendTcpdump, ""},
	{"Bidirectional", TestBidirectional, ""},
	{"InvalidDescriptors", TestInvalidDescriptors, ""},
	{"PollSend", TestPollSend, ""},
	{"OtherDirection", TestOtherDirection, ""},
	{"RingSizes", TestRingSizes, ""},
	{"NoAllocations", TestNoAllocations, ""},

	{"Teardown", TestTeardown, ""},
	{"CloseTwice", TestCloseTwice, ""},
	{"CloseFlushes", TestCloseFlushes, ""},
	{"CloseWhileDown", TestCloseWhileDown, ""},
	{"ConcurrentControl", TestConcurrentControl, ""},
	{"NothingWritesAfterClose", TestNothingWritesAfterClose, ""},
	{"Probe", TestProbe, ""},

	{"RingFull", TestRingFull, ""},
	{"NoFrames", TestNoFrames, "a card without frames has its fellow wait"},
	{"Overload", TestOverload, ""},
	{"LedgerAfterClose", TestLedgerAfterClose, ""},
	{"LedgerWhileClosing", TestLedgerWhileClosing, ""},

	{"ConfigMistakes", TestConfigMistakes, ""},
	{"WorkersPerQueue", TestWorkersPerQueue, "its two workers know of no reserve"},
	{"TwoShapes", TestTwoShapes, ""},
	{"BusyQueue", TestBusyQueue, ""},
	{"InterfaceDown", TestInterfaceDown, ""},
	{"InterfaceRenamed", TestInterfaceRenamed, ""},
	{"CheckWhileExchanging", TestCheckWhileExchanging, ""},
	{"ProgramCleanup", TestProgramCleanup, ""},
	{"ForeignProgram", TestForeignProgram, ""},
	{"LinkDetached", TestLinkDetached, ""},
	{"OwnProgram", TestOwnProgram, ""},
	{"Promiscuous", TestPromiscuous, ""},
	{"TagsAreKept", TestTagsAreKept, ""},
	{"PortContract", TestPortContract, ""},
}

// notOnCards are the other tests, and why.
var notOnCards = map[string]string{
	"InterfaceGone":        "a card is not removed as a veth pair is",
	"MultiBuffer":          longer,
	"NoFramesForFragments": longer,
	"RefusedMessages":      longer,
	"TooLong":              longer,
	"TooLongForSocket":     longer,
	"TooManyFrames":        longer,
	"SharedUMEM":           "a card chooses the queue of a packet by what is in it",
	"SomeQueues":           "a card chooses the queue of a packet by what is in it",
	"QueuesChange":         "a card does not change its queues under a socket (TestDisturbed)",
	"SendNobodyListens":    "an emulated card has a link also while its fellow is down",
	"Policies":             "TestZeroCopyGranted asks cards for zero copy",
	"Unprivileged":         "it is about the process",
	"GenericMode":          "it is about the loopback interface",
	"SupplyRefusesExtents": noInterface, "Attempts": noInterface, "ParsePolicy": noInterface, "RingBounds": noInterface,
	"RingFromOutside": noInterface, "RingWraps": noInterface, "CardClock": "", "CardClockRefused": "", "CardTime": "",
}

const (
	longer      = "no card here has packets of several frames"
	noInterface = "it asks nothing of an interface"
)

func onCards(t *testing.T, form labenv.Form) {
	testenv.Long(t, "make lab runs these; TestZeroCopy stands for them")
	labenv.Modules(t, "veth")
	form.Instead(t)
	t.Cleanup(func() { policy = Prefer })
	if form.Copy {
		policy = Copy
	}
	for _, c := range cardTests {
		if c.not != "" && form.ZeroCopy(t) {
			continue
		}
		t.Run(c.name, c.run)
	}
}

var testFunction = regexp.MustCompile(`(?m)^func Test(\w+)\(t \*testing\.T\)`)

// TestCardsLeaveNothingOut: each test of the package runs on cards, or says why not.
func TestCardsLeaveNothingOut(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_lab_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testFunction.FindAllSubmatch(text, -1) {
			_, left := notOnCards[string(m[1])]
			if left == slices.ContainsFunc(cardTests, func(c cardTest) bool { return c.name == string(m[1]) }) {
				t.Errorf("%s: Test%s must either run on cards or be left out with a reason", file, m[1])
			}
		}
	}
}
