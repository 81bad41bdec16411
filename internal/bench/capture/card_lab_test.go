//go:build lab

package capture

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

//lab:program cmd/unifiedd
//lab:program selftests/unified-xdp-test

// cardRate is the packets per second that a sender can send to an emulated card while a contestant runs on
// the emulated processor.
const cardRate = 4000

// cardBar is the most cost per packet of ours, relative to stenotype's, where the card has zero
// copy.
const cardBar = 1.0

// cardRegion sets our memory, since guests are small, and a sleep that is so long that wake-ups add little to
// the cost of a packet on the emulated processor.
const cardRegion = "workers: [{name: main, sleep: 10ms}]\nregion: {size: 128MiB, extents: 32}"

// cardBlocks is the least memory that stenotype runs with, in MiB.
const cardBlocks = 128

// TestAgainstStenotypeOnCard compares with stenotype on an emulated igb card, with zero copy if the kernel has it, writing to
// files on the NVMe disk. The guest is gone afterwards, so the report goes to standard output, where make lab-bench takes it
// from.
func TestAgainstStenotypeOnCard(t *testing.T) {
	testenv.Long(t, "make lab-bench measures; that captures from the card lose nothing and copy nothing TestCardToDisk shows")
	b := newCardBed(t)
	r := bench.NewReport("Packets of an emulated igb card to disk, in the lab guest", "unifiedd", "stenotype")
	zeroCopy, how := "require", "zero copy"
	if !labenv.ZeroCopy(t, b.pair.B.Ifname) {
		zeroCopy, how = "prefer", "the kernel's copy, because this kernel has no zero copy for the card"
	}
	r.Notes = []string{
		"unifiedd receives with " + how + ".",
		fmt.Sprintf("%d rounds, each contestant in turn having %v of packets; sender and receiver on a CPU each; %s form.", b.rounds(), b.span(), b.form.Name),
		"What a packet costs is the time the guest's processors were not idle less that of the same packets into an XDP program that drops them.",
		"The guest's processors, card and disk are emulated: only the ratios mean something.",
	}
	theirs := b.stenotype(cardBlocks)
	for _, w := range []work{{64, cardRate, "packed"}, {512, cardRate, "packed"}, {1024, cardRate, "packed"}, {1500, cardRate, "packed"}, {1024, cardRate, "slot"}} {
		b.compete(r, w, []contestant{ours("unifiedd", b.daemon, "zero_copy: "+zeroCopy, "segment: {size: 32MiB}, layout: "+w.into, cardRegion), theirs})
	}
	if err := r.Print(os.Stdout, "lab-capture"); err != nil {
		t.Error(err)
	}
}

// newCardBed returns a bed on the igb cards of the guest. The guest's kernel reports its idle time: a program
// that soaks up idle time would take the processors that the emulator's own threads need.
func newCardBed(t *testing.T) *bed {
	t.Helper()
	b := plainBed(t)
	testenv.HugePages(t, 2*(128+32+16)<<20)
	b.pair, b.dir, b.bars = labenv.Igb(t), labenv.Ext4(t, labenv.Disk), bars{stenotype: cardBar, best: takenBars.best}
	b.daemon, b.sender, b.told = labenv.Program(t, "unifiedd"), labenv.Program(t, "unified-xdp-test"), []string{"-zero-copy", "copy"} // else its card has no link for a moment
	t.Cleanup(func() { b.pair.B.Run(t, "ip", "link", "set", b.pair.B.Ifname, "promisc", "off") })                                     // stenotype leaves it on
	b.idle = kernelMeter{time.Now()}
	return b
}
