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

// cardTest is a test that also runs on cards.
type cardTest struct {
	name string
	run  func(*testing.T)
}

var cardTests = []cardTest{
	{"Receive", TestReceive},
	{"SinglePacket", TestSinglePacket},
	{"Filter", TestFilter},
	{"StartStop", TestStartStop},
	{"Timestamps", TestTimestamps},
	{"PollReceive", TestPollReceive},
	{"UpperRegion", TestUpperRegion},
	{"Unstamped", TestUnstamped},

	{"Send", TestSend},
	{"SendTcpdump", TestSendTcpdump},
	{"Bidirectional", TestBidirectional},
	{"InvalidDescriptors", TestInvalidDescriptors},
	{"PollSend", TestPollSend},
	{"Lent", TestLent},
	{"LentSendsOnly", TestLentSendsOnly},
	{"OtherDirection", TestOtherDirection},
	{"RingSizes", TestRingSizes},
	{"NoAllocations", TestNoAllocations},

	{"Teardown", TestTeardown},
	{"CloseTwice", TestCloseTwice},
	{"CloseFlushes", TestCloseFlushes},
	{"CloseWhileDown", TestCloseWhileDown},
	{"ConcurrentControl", TestConcurrentControl},
	{"NothingWritesAfterClose", TestNothingWritesAfterClose},
	{"Probe", TestProbe},

	{"RingFull", TestRingFull},
	{"NoFrames", TestNoFrames},
	{"Overload", TestOverload},
	{"LedgerAfterClose", TestLedgerAfterClose},
	{"LedgerWhileClosing", TestLedgerWhileClosing},

	{"ConfigMistakes", TestConfigMistakes},
	{"WorkersPerQueue", TestWorkersPerQueue},
	{"TwoShapes", TestTwoShapes},
	{"BusyQueue", TestBusyQueue},
	{"InterfaceDown", TestInterfaceDown},
	{"InterfaceRenamed", TestInterfaceRenamed},
	{"CheckWhileExchanging", TestCheckWhileExchanging},
	{"ProgramCleanup", TestProgramCleanup},
	{"ForeignProgram", TestForeignProgram},
	{"LinkDetached", TestLinkDetached},
	{"OwnProgram", TestOwnProgram},
	{"Promiscuous", TestPromiscuous},
	{"TagsAreKept", TestTagsAreKept},
	{"PortContract", TestPortContract},

	{"Share", TestShare},
	{"ShareRefused", TestShareRefused},
	{"ShareNoAllocations", TestShareNoAllocations},
}

// notOn returns why a form leaves a test out, or nothing.
var notOn = map[string]func(f labenv.Form, zeroCopy bool) string{
	"UpperRegion":  reserve,
	"PortContract": reserve, // the suite knows each frame that is in the port
	"NoFrames": func(_ labenv.Form, zeroCopy bool) string {
		if zeroCopy {
			return "igb is never without frames, and a virtio card has its fellow wait"
		}
		return ""
	},
	"WorkersPerQueue": func(f labenv.Form, zeroCopy bool) string {
		if f.Queues < 2 {
			return "the card has one queue"
		}
		return reserve(f, zeroCopy)
	},
}

// again are the tests that depend on how sockets are bound. They run in both forms of igb even if
// the kernel has no zero copy for it. The other tests would do the same in both.
var again = []string{
	"Receive", "Timestamps", "Send", "Bidirectional", "Teardown", "CloseTwice", "Probe", "ConfigMistakes", "BusyQueue", "OwnProgram",
}

// leftOut returns why a form leaves a test out, or nothing.
func leftOut(name string, form labenv.Form, zeroCopy bool) string {
	if form.Name == labenv.IgbZeroCopy.Name && !zeroCopy && !slices.Contains(again, name) {
		return "this kernel has no zero copy on igb, so that it is the same in TestOnIgbCopy"
	}
	if not := notOn[name]; not != nil {
		return not(form, zeroCopy)
	}
	return ""
}

// reserve keeps frames of the test's rig in each port (reserve.go).
func reserve(f labenv.Form, zeroCopy bool) string {
	if zeroCopy && f.Name == labenv.IgbZeroCopy.Name {
		return "other frames are in the port, its reserve"
	}
	return ""
}

// copied says why tests of copy mode run only on veth pairs.
const copied = "RoCE in software has that short way only where the kernel copies, as on a veth pair"

// notOnCards are the other tests, and why they do not run on cards.
var notOnCards = map[string]string{
	"DispatcherNone":       "what there is to join is no matter of the card's",
	"InterfaceGone":        "a card is not removed as a veth pair is",
	"CheckWhileRenamed":    "it is about names, which a veth pair has as cards do",
	"MultiBuffer":          longer,
	"NoFramesForFragments": longer,
	"RefusedMessages":      longer,
	"TooLong":              longer,
	"TooLongForSocket":     longer,
	"TooManyFrames":        longer,
	"LentJumbo":            longer,
	"SharedUMEM":           "a card chooses the queue of a packet by what is in it",
	"SomeQueues":           "a card chooses the queue of a packet by what is in it",
	"QueuesChange":         "a card does not change its queues under a socket (TestDisturbed)",
	"SendNobodyListens":    "an emulated card has a link also while its fellow is down",
	"Policies":             "TestZeroCopyGranted asks cards for zero copy",
	"Unprivileged":         "it is about the process",
	"Example":              "it runs the Example of the package, as it stands, on a veth pair",
	"SteerRefused":         rulesApart, "SteerRole": rulesApart, "SteerRules": rulesApart, "SteerListed": rulesApart, "SteerKilled": rulesApart, "SteerAllOrNone": rulesApart,
	"Macvlan": "its packets are the kernel's own, whatever is below it", "BondOf": noInterface,
	"SendNow":   copied,
	"SendTimes": copyStamps, "SendTimesRoom": copyStamps,
	"Peek":                 copied,
	"ShareWithWhoIsSlow":   "a card has frames in its own ring, and loses packets there",
	"ShareFull":            "it is about the program",
	"GenericMode":          "it is about the loopback interface",
	"SupplyRefusesExtents": noInterface, "Attempts": noInterface, "ParsePolicy": noInterface, "RingBounds": noInterface,
	"RingFromOutside": noInterface, "RingWraps": noInterface, "ProgramTries": noInterface,
	"SendGathered": parts, "SendGatheredRoom": parts, "SendGatheredRefused": parts, "SendGatheredDisorder": parts, "SendGatheredNoAllocations": parts,
	"CardClock": noStamps, "CardClockRefused": noStamps, "CardTime": noInterface,
}

const (
	copyStamps  = "the kernel stamps where it copies, and the test asks for that"
	rulesApart  = "no card here takes rules (TestSteerOnCards)"
	longer      = "no card here has packets of several frames"
	parts       = "no card here sends packets of several frames"
	noInterface = "it asks nothing of an interface"
	noStamps    = "no driver of these cards gives programs the card's time (TestCardStamps, TestCardsWithoutStamps)"
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
		if why := leftOut(c.name, form, form.ZeroCopy(t)); why != "" {
			t.Logf("%s is left out: %s", c.name, why)
			continue
		}
		t.Run(c.name, c.run)
	}
}

var testFunction = regexp.MustCompile(`(?m)^func Test(\w+)\(t \*testing\.T\)`)

// TestCardsLeaveNothingOut: each test of the package runs on cards, or the tables say why not.
func TestCardsLeaveNothingOut(t *testing.T) {
	labenv.Guest(t)
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
