package order

import (
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/internal/tcpsend"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

// times notes for each order that has left when its tick arrived, when the program decided, and when it left. It belongs
// to the worker's thread. Any goroutine may observe it.
//
// When an order left is the stamp of its segment, if the kernel gives stamps of the system's clock. Otherwise it is when
// the call that transmits had returned. A stamp of a card's clock cannot be compared with the other times, so it is only
// in the file.
type times struct {
	region  *umem.Region
	port    *xdp.Port
	granted xdp.Granted
	asked   asked   // the order that the sink is about to send
	slots   []asked // orders whose segments the interface has, by Token of the frame's Side
	file    *timesFile

	toDecision, toOut, whole latency.Shared
	noTick, noStamp          counter.Counter
}

// asked is an order of the program, or of a rule.
type asked struct {
	order    uint64 // its position, from 1 on; 0: none
	tick     uint64 // when the tick that it answers arrived, as the program says; 0: it does not
	decision uint64
	call     uint64 // when the call that transmits had returned; 0: not noted
	stamp    uint64 // of the kernel or the card; 0: none
	way      way
	known    bool // tick is a time of the system's clock
}

// way is how an order has left: 0 in a segment of ours, else in one of the kernel, for a reason.
type way uint8

// Ways that are no reasons of tcpsend.
const (
	noRoomWay = way(tcpsend.Reasons) + iota // the transmit ring was full
	brokenWay                               // the interface did not take the segment
)

func (w way) String() string {
	switch {
	case w == 0:
		return "segment"
	case w == noRoomWay:
		return "no_room"
	case w == brokenWay:
		return "broken"
	}
	return tcpsend.Reason(w).String()
}

// open prepares for the frames of the flow, and opens the file, if there is one.
func (t *times) open(e *pipeline.Env, port *xdp.Port, granted xdp.Granted, o *config.Order) error {
	t.region, t.port, t.granted, t.slots = e.Region, port, granted, make([]asked, o.Ring)
	if o.Times == "" {
		return nil
	}
	var err error
	if t.file, err = openTimesFile(o.Times, e.Log); err != nil {
		return err
	}
	e.Undo.Add(t.file.close)
	return nil
}

// number gives the frames of the flow the numbers of their slots.
func (t *times) number(frames []umem.Frame) {
	for i, f := range frames {
		t.region.Side(f).Token = uint64(i)
	}
}

// stamped reports whether a stamp of the system's clock says when a segment left.
func (t *times) stamped() bool { return t.granted.SendTimes && t.granted.SendClock == umem.SystemClock }

// Bounds of what a program may say. Its clock is the daemon's, but the worker may not have run for a while, before the
// round in which it takes the order, or in it.
const (
	mostApart = uint64(time.Second) // the decision and the beginning of that round
	mostAge   = uint64(time.Minute) // of a tick when the program decides
)

// begin notes the times of an order that the program has submitted, as far as they can be right.
func (t *times) begin(order uint64, side *umem.Side) {
	a := asked{order: order, decision: side.Stamp}
	if d := side.Block; d > a.decision-mostApart && d < a.decision+mostApart {
		a.decision = d
	}
	a.tick = side.Token
	a.known = a.tick <= a.decision && a.decision-a.tick < mostAge
	t.asked = a
}

// answers notes when a rule has made an order of a message, whose packet has arrived as a Side says.
func (t *times) answers(order uint64, side *umem.Side, decision uint64) {
	a := asked{order: order, tick: side.Stamp, decision: decision}
	a.known = side.Clock == umem.SystemClock && a.tick <= a.decision && a.decision-a.tick < mostAge
	t.asked = a
}

// none notes that what the sink is about to send is no order.
func (t *times) none() { t.asked = asked{} }

// slot returns the place of an order whose segment is in a frame of the flow, which the interface does not have yet.
func (t *times) slot(frame umem.Frame) *asked { return &t.slots[t.region.Side(frame).Token] }

// left notes that the segment of the order has left.
func (t *times) left(slot *asked) {
	if !t.stamped() {
		t.asked.call = uint64(time.Now().UnixNano())
	}
	if t.granted.SendTimes {
		*slot = t.asked
		return
	}
	t.finish(&t.asked)
}

// lost notes that the interface did not take the segment: the kernel sends the order again, at a time that is not known.
func (t *times) lost() {
	t.asked.way = brokenWay
	t.finish(&t.asked)
}

// leftBy notes that the kernel has the order, and sends it.
func (t *times) leftBy(w way) {
	t.asked.call, t.asked.way = uint64(time.Now().UnixNano()), w
	t.finish(&t.asked)
}

// reaped notes when the segments left that the port has just given back.
func (t *times) reaped(frames []umem.Frame) {
	if !t.granted.SendTimes {
		return
	}
	for _, f := range frames {
		slot := t.slot(f)
		if slot.order == 0 {
			continue
		}
		slot.stamp, _ = t.port.SentAt(f)
		t.finish(slot)
	}
}

// finish records the times of an order.
func (t *times) finish(a *asked) {
	if a.order == 0 {
		return
	}
	out := a.call
	if a.way == 0 && t.granted.SendTimes && a.stamp == 0 {
		t.noStamp.Add(1)
	}
	if a.way == 0 && t.stamped() {
		out = a.stamp
	}
	if a.known {
		t.toDecision.Record(a.decision - a.tick)
	} else {
		t.noTick.Add(1)
	}
	if out != 0 {
		t.toOut.Record(pipeline.Elapsed(out, a.decision))
		if a.known {
			t.whole.Record(pipeline.Elapsed(out, a.tick))
		}
	}
	if t.file != nil {
		t.file.put(a)
	}
	a.order = 0
}

// abandon records the orders whose frames do not come back any more.
func (t *times) abandon() {
	for i := range t.slots {
		if slot := &t.slots[i]; slot.order != 0 {
			t.finish(slot)
		}
	}
}

// observe may be called from any goroutine.
func (t *times) observe(to *status.Orders) {
	o := &status.OrderTimes{
		Stamps: "none", TickToDecision: t.toDecision.Distribution(), DecisionToOut: t.toOut.Distribution(), TickToOut: t.whole.Distribution(),
		NoTick: t.noTick.Load(), NoStamp: t.noStamp.Load(),
	}
	switch {
	case t.stamped():
		o.Stamps = "kernel"
	case t.granted.SendTimes:
		o.Stamps = "card"
	}
	if why := t.granted.NoSendTimes; why != nil {
		o.WhyNoStamps = why.Error()
	}
	if t.file != nil {
		o.File = t.file.status()
	}
	to.Times = o
}
