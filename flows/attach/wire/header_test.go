package wire

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/golden"
)

// number is a constant of libunifiedd.
type number struct {
	name  string
	value uint64
	note  string
}

// header is libunifiedd/wire.h: what both sides must agree about, part by part.
var header = []struct {
	about string
	all   []number
}{
	{"messages of the socket", []number{
		{"VERSION", Version, ""}, {"HEADER_LEN", headerLen, ""}, {"MAX_NAME", MaxName, "bytes of a name"}, {"NAME_LEN", nameLen, "and in a message, where zeros follow"},
		{"MAX_TEXT", maxText, "bytes of the daemon's text for people"}, {"MAX_MESSAGE", MaxMessage, ""},
	}},
	{"kinds of messages", []number{
		{"HELLO", uint64(KindHello), ""}, {"WELCOME", uint64(KindWelcome), ""}, {"REFUSAL", uint64(KindRefusal), ""}, {"OPEN", uint64(KindOpen), ""},
		{"OPENED_PORT", uint64(KindOpened), ""}, {"CLOSE", uint64(KindClose), ""}, {"END", uint64(KindEnd), ""}, {"CLOSED_PORT", uint64(KindClosed), ""}, {"MAPPED", uint64(KindMapped), ""},
	}},
	{"lengths of bodies", []number{
		{"HELLO_LEN", bodyBytes(KindHello), ""}, {"WELCOME_LEN", bodyBytes(KindWelcome), ""}, {"OPEN_LEN", bodyBytes(KindOpen), ""},
		{"OPENED_LEN", bodyBytes(KindOpened), ""}, {"CLOSE_LEN", bodyBytes(KindClose), ""},
	}},
	{"roles besides enum ufd_role, and what the answer to them has in align", []number{
		{"LOOK", uint64(Look), "the memory of a state"}, {"GIVE", uint64(Give), "a connection of the program"}, {"ONCE", Once, "nothing is submitted again"},
	}},
	{"the rings of a port, one behind the other", []number{
		{"RECEIVED", RingReceived, ""}, {"RELEASED", RingReleased, ""}, {"SUBMITTED", RingSubmitted, ""}, {"DONE", RingDone, ""}, {"RINGS", Rings, ""},
		{"RING_MAGIC", ringMagic, `"uRNG"`}, {"RING_ENTRIES_AT", entriesAt, ""}, {"RING_HEAD_AT", headAt, ""}, {"RING_TAIL_AT", tailAt, ""}, {"RING_ASLEEP_AT", asleepAt, ""},
		{"RING_LEN", ringHeader, "before the entries"}, {"RING_ENTRY_LEN", EntryLen, ""},
	}},
	{"channels", []number{
		{"CHANNEL_MAGIC", channelMagic, `"uCHN"`}, {"SLOTS_AT", slotsAt, ""}, {"SLOT_AT", slotLenAt, ""}, {"FLAGS_AT", flagsAt, ""}, {"LAST_AT", lastAt, ""}, {"STALLS_AT", stallsAt, ""},
		{"NUMBERING_AT", numberingAt, ""}, {"RING_HEADER", channelHeader, "before the slots"}, {"SLOT_HEADER", SlotHeader, ""}, {"MIN_SLOT", MinSlot, ""}, {"MAX_SLOT", MaxSlot, ""},
		{"PAGE_LEN", PageLen, "of a reader, and of the page of who is there"}, {"CURSOR_AT", cursorAt, "in a reader's page"}, {"LOST_AT", lostAt, ""}, {"SLEEPS_AT", cursorSleeps, ""},
		{"READER_STRIDE", readerStride, "in the page of who is there"}, {"MAX_READERS", MaxReaders, ""},
		{"SUMS", Sums, "the writer puts a checksum into each slot"}, {"UNORDERED", Unordered, "bytes of slots arrive in any order: readers check the checksum"},
	}},
	{"states", []number{
		{"STATE_MAGIC", stateMagic, `"uSTA"`}, {"HEAD_LEN", StateHeadLen, ""}, {"MARK_AT", markAt, ""}, {"MARK_LEN", markPayload, "position 8, entries 8"},
		{"OBJECTS", uint64(Objects), "kinds"}, {"KEYS", uint64(Keys), ""}, {"WORDS", uint64(Words), ""},
		{"OBJECT_HEADER", ObjectHeader, ""}, {"PLACE_UNIT", placeUnit, "objects and words begin at multiples of it"}, {"WORD_LEN", WordLen, ""},
		{"BUCKET_LEN", BucketLen, ""}, {"BUCKET_HEADER", bucketHeader, ""}, {"PER_BUCKET", perBucket, ""}, {"ENTRY_LEN", entryLen, ""}, {"ENTRY_HEADER", entryHeader, ""},
		{"MAX_KEY_VALUE", MaxKeyValue, "bytes of a key and its value together"}, {"MAX_ROOM", MaxRoom, "bytes of an object"}, {"MAX_PLACES", maxPlaces, ""},
		{"MAX_STATE_LEN", maxStateLen, ""}, {"NO_PAYLOAD", uint64(noPayload), ""}, {"TRIES", Tries, "looks at what is being written, before UFD_AGAIN"},
		{"PUT", opPut, "operations of updates"}, {"DELETE", opDelete, ""}, {"UPDATE_HEADER", UpdateHeader, ""},
	}},
}

func bodyBytes(k Kind) uint64 { return uint64(bodyLen[k]) }

// TestHeader: libunifiedd has the numbers of this package.
func TestHeader(t *testing.T) {
	var b strings.Builder
	b.WriteString(`/* SPDX-License-Identifier: Apache-2.0 */
/* wire.h: what the daemon and a program must agree about. go test ./flows/attach/wire -run TestHeader -update writes it. */
#ifndef UNIFIEDD_WIRE_H
#define UNIFIEDD_WIRE_H

#include <stdint.h>
`)
	var wide strings.Builder // an enumerator is an int
	for _, part := range header {
		fmt.Fprintf(&b, "\n/* %s%s. */\nenum {\n", strings.ToUpper(part.about[:1]), part.about[1:])
		for _, n := range part.all {
			note := ""
			if n.note != "" {
				note = " /* " + n.note + " */"
			}
			if n.value > math.MaxInt32 {
				fmt.Fprintf(&wide, "#define %s UINT64_C(%d)%s\n", n.name, n.value, note)
				continue
			}
			fmt.Fprintf(&b, "\t%s = %d,%s\n", n.name, n.value, note)
		}
		b.WriteString("};\n")
	}
	b.WriteString("\n" + wide.String())
	b.WriteString("\n#endif\n")
	golden.Compare(t, "../../../libunifiedd/wire.h", b.String())
}
