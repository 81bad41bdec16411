package finding

import (
	"fmt"

	"github.com/unifiedd/unifiedd/flows/status"
)

// Loss is how much a flow has lost for one reason.
type Loss struct {
	Reason string // of docs/reference/reasons.md
	Count  uint64
	Why    string
	Remedy string
}

// Losses returns what a flow has lost of its packets or messages, by reason. What it leaves out on purpose is not lost.
func Losses(f *status.Flow) (all []Loss) {
	for _, reason := range sorted(f.Dropped) {
		if status.OnPurpose(reason) {
			continue
		}
		text, ok := reasons[reason]
		if !ok {
			text = words{reason, "docs/reference/reasons.md has each reason"}
		}
		if reason == "lost_ring_full" || reason == "lost_no_frames" {
			text = late(f, text)
		}
		all = append(all, Loss{reason, f.Dropped[reason], text.why, text.remedy})
	}
	return all
}

// late returns why the rings of an interface had no room or no frames. If the flow never waited for its sink, its worker
// came too late.
func late(f *status.Flow, otherwise words) words {
	if f.Stalled() {
		return otherwise
	}
	return words{"the worker came too late to the rings, while there were frames", fmt.Sprintf("use a larger from.ring than %d, a shorter sleep, or a CPU for the worker alone", f.Ring)}
}

type words struct{ why, remedy string }

// seeLog is the remedy where only the log knows the cause.
const seeLog = "the daemon's log has the reason"

// reasons are those of docs/reference/reasons.md that say more than the word does.
var reasons = map[string]words{
	"lost_ring_full":   {"the worker polled the ring too late", "use a larger from.ring, a shorter sleep, or a CPU for the worker alone"},
	"lost_no_frames":   {"the rings had no empty frame, as the flow waited for its disk or peers", "use a faster disk or a larger region"},
	"lost_too_long":    {"packets of several frames reached a socket that accepts packets of one frame", "use larger frames"},
	"lost_missed":      {"the card had no free descriptor", "use larger rings of the card (ethtool -G), or fewer packets"},
	"lost_damaged":     {"the card refused them as broken", "see the cable, and the other end"},
	"lost_driver":      {"the driver dropped them", "ethtool -S says why"},
	"mirror_full":      {"the veth pair of the mirror had no room for the copy", "use a larger from.ring, or a CPU for the worker alone"},
	"mirror_failed":    {"the kernel could not copy them", "give the host more free memory"},
	"buffer_full":      {"the ring of the packet socket had no free block", "use a larger from.buffer or a faster disk"},
	"not_received":     {"they waited in a ring when the flow failed", seeLog},
	"missing":          {"the log does not have them any more, or not whole", "unifiedd log verify says where"},
	"not_generated":    {"the sink did not take generated packets in time", "see its disk, peer or program, or lower the rate"},
	"write_failed":     {"they could not be written or sent", seeLog},
	"refused":          {"a relay sent them with a session of another client", "the relay sends them again"},
	"not_acknowledged": {"the relay ended before enough peers had them", "the clients still have them"},
	"no_program":       {"no program had the flow open", "start the program that receives them"},
	"slow_program":     {"the attached program did not take enough", "make it faster, or raise to.queue"},
	"too_long":         {"they are longer than a frame", "use larger frames"},
}
