package config

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/unifiedd/unifiedd/bpf/filter"
)

// Bounds of a flow's settings. A device has at most 4096 queues (rtnl_create_link,
// net/core/rtnetlink.c). The name of a segment is its prefix and 41 bytes. A file name has at most
// 255 bytes, and a path 4095 (PATH_MAX).
const (
	maxQueue   = 4095
	minSegment = MiB
	maxSegment = 64 * TiB
	maxPath    = 4095 - maxSuffix
	maxBase    = 255 - maxSuffix
	maxSuffix  = 41
)

// Bounds of the number of entries of a ring.
const (
	MinRing = 64
	MaxRing = 32768
)

func (v *validator) flows() {
	v.check(len(v.Flows) > 0, "flows", "at least one is needed")
	names := newTaken[string](v, "flow")
	shared := newShared(v)
	for i := range v.Flows {
		f, path := &v.Flows[i], index("flows", i)
		v.name(join(path, "name"), f.Name)
		names.take(join(path, "name"), f.Name)
		v.worker(join(path, "worker"), f.Worker)
		v.checkErr(join(path, "restart"), member(f.Restart, allRestarts))
		e := v.ends(path, f)
		v.resolve(f)
		v.meaning(path, f, e)
		v.from(path, f, e)
		v.stages(join(path, "stages"), f)
		v.to(path, f, e)
		v.watermarks(join(path, "watermarks"), f)
		v.links(path, f, e)
		shared.take(path, f)
	}
	shared.served()
}

// worker checks that the worker of a flow exists.
func (v *validator) worker(path, name string) {
	if !v.need(path, name, "the name of a worker") {
		return
	}
	names := make([]string, len(v.Workers))
	for i, w := range v.Workers {
		names[i] = w.Name
		if name == w.Name || v.explained(index("workers", i)+".name") {
			return
		}
	}
	hint := ""
	if meant, ok := suggest(name, names); ok {
		hint = didYouMean(meant)
	}
	v.refuse(path, wrong(hint, "there is no worker %s", quote(name)))
}

// from checks the source of a flow.
func (v *validator) from(path string, f *Flow, e ends) {
	from := join(path, "from")
	v.onlyOne(from, []named{
		{"interface", "an interface", f.From.Interface}, {"rdma", "an RDMA device", f.From.RDMA},
		{"file", "a file", f.From.File}, {"device", "a device", f.From.Device},
		{"generate", "generated packets", f.From.generated()}, {"attach", "a program", f.From.Attach}, {"channel", "a channel", f.From.Channel},
	})
	switch e.from {
	case votes:
		if _, given := v.places[from]; given {
			v.refuse(from, wrong("remove it", "a witness has no clients and no records"))
		}
	case network:
		v.network(from, &f.From, e.kind())
		v.engine(path, f, e.kind())
	case remote:
		if e.to == ring {
			v.channelListener(from, f)
		} else {
			v.clients(from, f)
		}
	case ring:
		v.takesChannel(from, &f.From)
	case storage:
		v.source(from, &f.From)
		if e.kind() == KindStorageNetwork {
			v.captures(from, &f.From)
		}
	case null:
		v.generated(from, &f.From)
	case program:
		v.submits(from, f)
	default:
		v.refuse(from, errors.New("an interface, an RDMA device, or a file or device to serve is needed"))
		v.packets(from, &f.From, e.kind())
	}
}

// named is one of the settings that exclude each other as the source or sink of a flow.
type named struct{ key, what, text string }

// onlyOne refuses all but the first of the settings that the file has.
func (v *validator) onlyOne(path string, all []named) {
	first, words := "", make([]string, len(all))
	for i, n := range all {
		words[i] = n.key
	}
	for _, n := range all {
		at := join(path, n.key)
		switch {
		case !v.given(at, n.text) && !v.settled[at]:
		case first == "":
			first = n.what
		default:
			v.refuse(at, fmt.Errorf("the flow has %s already: only one of %s is possible", first, oneOfWords(words)))
			v.settle(at)
		}
	}
}

// oneOfWords formats words as "a, b and c".
func oneOfWords(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

func (v *validator) network(path string, f *From, kind Kind) {
	if all := join(path, "interfaces"); v.given(all, strings.Join(f.Interfaces, "")) {
		v.interfaces(path, f, kind)
	} else {
		v.need(join(path, "interface"), f.Interface, "the name of a network interface")
		v.checkErr(join(path, "interface"), checkInterface(f.Interface))
	}
	v.comment(join(path, "comment"), f.Comment)
	v.packets(path, f, kind)
}

// comment checks a text for the head of capture files.
func (v *validator) comment(path, text string) {
	if v.given(path, text) {
		v.checkErr(path, checkComment(text))
	}
}

// interfaces checks the list of several interfaces.
func (v *validator) interfaces(path string, f *From, kind Kind) {
	all := join(path, "interfaces")
	_, both := v.places[join(path, "interface")]
	switch {
	case v.explained(all):
	case both:
		v.refuse(all, wrong("put it in the list and remove the key", "interface is given in addition to the list"))
	case len(f.Interfaces) == 0:
		v.refuse(all, errors.New("no interface is listed"))
	case kind != KindNetworkStorage && kind != "":
		v.refuse(all, wrong("say interface:, or make flows of them", "several interfaces go to one capture only, and this flow is %s", kind.words()))
	}
	for i, name := range f.Interfaces {
		at := v.first(join(index(all, i), "name"), index(all, i))
		v.need(at, name, "the name of a network interface")
		v.checkErr(at, checkInterface(name))
		if i < len(f.Comments) {
			v.comment(join(index(all, i), "comment"), f.Comments[i])
		}
	}
}

// packets checks which packets of an interface the flow takes, and how.
func (v *validator) packets(path string, f *From, kind Kind) {
	v.checkErr(join(path, "zero_copy"), member(f.ZeroCopy, allZeroCopies))
	v.checkErr(join(path, "timestamps"), member(f.Timestamps, allTimestamps))
	v.check(f.Ring == 0 && kind == KindNetworkStorage || within(f.Ring, MinRing, MaxRing) && powerOfTwo(uint64(f.Ring)), join(path, "ring"),
		"%d is not a power of two from %d to %d", f.Ring, MinRing, MaxRing)
	v.check(within(f.BusyPoll, 0, maxPoll) && f.BusyPoll%time.Microsecond == 0, join(path, "busy_poll"),
		"%s is not whole microseconds, up to %s", f.BusyPoll, maxPoll)
	v.queues(join(path, "queues"), f.Queues)
	v.filters(join(path, "filter"), f)
	v.joins(path, f)
	v.mirror(path, f)
	v.steer(path, f)
	v.beside(path, f)
}

// mirror checks the settings beside mirror. Copies arrive on a separate interface.
func (v *validator) mirror(path string, f *From) {
	if f.Mirror == "" {
		return
	}
	v.checkErr(join(path, "mirror"), member(f.Mirror, allMirrors))
	v.check(f.Interfaces == nil, join(path, "interfaces"), "copies are of one interface: say interface, or remove mirror")
	v.check(f.Queues == nil, join(path, "queues"), "copies do not come by the queues of the interface: remove it, or mirror")
	v.check(f.ZeroCopy != ZeroCopyRequire, join(path, "zero_copy"), "the kernel copies what it mirrors: say prefer, or remove mirror")
	v.check(f.Timestamps != TimestampsHardware || f.Engine == EnginePacket, join(path, "timestamps"), "copies have no times of the card's clock: say prefer or software, or engine: packet, or remove mirror")
}

func (v *validator) queues(path string, queues []int) {
	v.check(queues == nil || len(queues) > 0, path, "no queue is listed")
	numbers := newTaken[int](v, "queue")
	for i, q := range queues {
		at := index(path, i)
		v.check(within(q, 0, maxQueue), at, "%d is not from 0 to %d", q, maxQueue)
		numbers.take(at, q)
	}
}

// filter calls the hook, and puts the caret where the hook's error points.
func (v *validator) filter(path, expr string) {
	if !v.given(path, expr) || v.explained(path) {
		return
	}
	if strings.TrimSpace(expr) == "" {
		v.refuse(path, wrong("remove the key to have everything", "is empty"))
		return
	}
	if v.CheckFilter == nil {
		return
	}
	err := v.CheckFilter(expr, v.link)
	if err == nil {
		return
	}
	at, err := v.filterPlace(path, expr, err)
	v.add(at, path, err)
}

// filterPlace returns the place of a filter's mistake in the file. If that is not known, the
// message has the place in the filter.
func (v *validator) filterPlace(path, expr string, err error) (Pos, error) {
	at := v.place(path)
	var o interface{ Offset() int }
	if !errors.As(err, &o) {
		return at, err
	}
	if v.src != nil {
		if exact, ok := v.src.offset(at, expr, o.Offset()); ok {
			return exact, err
		}
	}
	return at, fmt.Errorf("%w (at byte %d of the filter)", err, o.Offset())
}

// to checks the sink of a flow.
func (v *validator) to(path string, f *Flow, e ends) {
	to := join(path, "to")
	v.onlyOne(to, []named{
		{"file", "a file", f.To.File}, {"device", "a device", f.To.Device}, {"rdma", "an RDMA device", f.To.RDMA},
		{"interface", "an interface", f.To.Interface}, {"attach", "a program", f.To.Attach}, {"channel", "a channel", f.To.Channel}, {"state", "a state", f.To.State}, {"order", "an exchange", f.To.orders()}, {"discard", "nowhere to go", f.To.discards()},
	})
	if g := join(to, "group"); f.To.Replicas != nil && e.kind() != KindRDMAStorage && e.kind() != KindWitness {
		v.refuse(g, wrong("remove it", "only a log that RDMA clients append to has a group with members"))
	}
	switch kind := e.kind(); {
	case e.to == nowhere && e.from == storage:
		v.refuse(to, errors.New("an RDMA device to serve clients, or an interface to send captures, is needed"))
	case e.to == network && kind == "":
		v.refuse(join(to, "interface"), wrong("say from: {file: PATH}", "only captures are sent by an interface"))
	case kind == KindStorageNetwork:
		v.sending(to, &f.To)
	case e.to == nowhere:
		v.refuse(to, errors.New("a file, a device, or an RDMA device with peers is needed"))
	case e.to == hosts && kind == "":
		v.refuse(join(to, "subsystem"), wrong("say from: {device: PATH} or from: {file: PATH}", "NVMe hosts are served a file or a device"))
	case e.to == null && kind == "":
		v.refuse(join(to, "discard"), wrong("say rdma: and listen:, where clients connect", "a flow from storage to nowhere is not possible"))
	case e.to == null:
	case e.to == ring && kind == "":
		v.refuse(join(to, "channel"), wrong("say from: {rdma: …, listen: …}", "a channel gets the messages of the same channel on another machine"))
	case e.to == ring:
		v.givesChannel(to, &f.To)
	case e.from == ring && kind == "":
		v.refuse(to, wrong("say rdma: and peers:", "the messages of a channel go to RDMA peers"))
	case e.from == ring:
		v.channelPeers(to, f)
	case e.to == program && kind == "":
		v.refuse(join(to, "attach"), wrong("say from: {interface: …}, from: {rdma: …, listen: …} or from: {file: …}", "a program gets packets, messages or blocks, and this flow has none for it"))
	case e.to == program:
		v.gives(to, f)
	case e.to == exchange:
		v.orders(to, f)
	case e.to == shares && kind == "":
		v.refuse(join(to, "state"), wrong("say from: {attach: …}, from: {rdma: …, listen: …} or from: {file: …}, a log", "messages update a state, and this flow has none"))
	case e.to == shares:
		v.updates(to, f)
	case kind == "":
		v.refuse(to, wrong("say rdma: and listen:, where clients connect", "a flow from storage to storage is not possible"))
	case kind == KindWitness:
		v.target(to, &f.To)
		v.check(f.To.Device == "", join(to, "device"), "a witness has a file with its vote, and no log: say file")
		v.replicas(join(to, "group"), f)
	case e.to == storage:
		v.store(to, &f.To, kind)
		if kind == KindRDMAStorage {
			v.replicas(join(to, "group"), f)
		}
	case e.from == nowhere: // without a source the kind of sink is not known
		v.checkErr(join(to, "rdma"), checkRDMA(f.To.RDMA))
	case kind == KindStorageRDMA:
		v.blocks(to, &f.To)
	case kind == KindStorageNVMe:
		v.subsystem(to, &f.To)
		v.check(!f.To.Force || f.From.Device != "", join(to, "force"), "has a meaning only for a device")
	default:
		v.peers(to, &f.To)
		if kind.relays() && !v.explained(join(path, "from.rdma")) {
			v.acknowledge(join(to, "acknowledge"), &f.To)
		}
	}
}

// maxRules is the largest number of rules of a flow.
const maxRules = 64

// filters checks the settings that select packets.
func (v *validator) filters(path string, f *From) {
	_, mapping := v.places[join(path, "object")]
	_, named := v.places[join(path, "program")]
	switch {
	case v.explained(path):
	case f.Object != (Object{}) || mapping || named:
		v.object(path, &f.Object)
	case f.Rules != nil:
		v.rules(path, f.Rules)
	default:
		v.filter(path, f.Filter)
	}
}

// object checks the user's own program, and records its digest.
func (v *validator) object(path string, o *Object) {
	file, program := join(path, "object"), join(path, "program")
	have := v.need(file, o.File, "the path of an ELF object")
	have = v.need(program, o.Program, "the name of the program in the object") && have
	if !have {
		return
	}
	if !filepath.IsAbs(o.File) {
		v.refuse(file, errors.New("is not an absolute path"))
		return
	}
	if v.CheckObject == nil {
		return
	}
	digest, err := v.CheckObject(o.File, o.Program)
	v.checkErr(file, err)
	o.Digest = digest
}

// rules checks the list of rules. Each must be able to match a packet.
func (v *validator) rules(path string, rules []Rule) {
	v.check(len(rules) > 0, path, "no rule is listed")
	v.check(len(rules) <= maxRules, path, "%d rules are too many; at most %d are possible", len(rules), maxRules)
	names := newTaken[string](v, "rule")
	for i := range rules {
		r, at := &rules[i], index(path, i)
		v.name(join(at, "name"), r.Name)
		names.take(join(at, "name"), r.Name)
		v.checkErr(join(at, "action"), member(r.Action, allActions))
		match := join(at, "match")
		v.filter(match, r.Match)
		if _, given := v.places[match]; r.Match == "" && !given && i < len(rules)-1 {
			v.refuse(at, wrong("give it match:, or make it the last", "matches every packet, so the rules after it never decide"))
		}
	}
}

// steer checks the settings beside steer: the card's rules come from the filter and lead to the
// queues.
func (v *validator) steer(path string, f *From) {
	at := join(path, "steer")
	if !v.given(at, string(f.Steer)) || v.explained(at) {
		return
	}
	v.checkErr(at, member(f.Steer, allSteers))
	switch {
	case f.Mirror != "":
		v.refuse(at, wrong("remove it, or mirror", "copies do not come by the queues of the card"))
		return
	case f.Rules != nil || f.Object.File != "":
		v.refuse(at, wrong("remove it, or give one expression as filter", "cards take rules that one expression is made of, and here are several rules or a program"))
	case f.Filter == "" && !v.explained(join(path, "filter")):
		v.refuse(at, wrong("remove it, or say filter:", "there is no filter that says which packets the card is to steer"))
	}
	if f.Queues == nil && !v.explained(join(path, "queues")) {
		v.refuse(at, wrong("say queues:, such as [1]", "all queues are bound, so that there are none to steer to"))
	}
	if f.Filter != "" {
		v.steered(join(path, "filter"), f.Filter)
	}
}

// steered refuses an expression that cards cannot express.
func (v *validator) steered(path, text string) {
	if v.explained(path) {
		return
	}
	expr, err := filter.Parse(text)
	if err != nil {
		return // the hook reports it
	}
	if _, err := expr.Tuples(); err != nil {
		at, err := v.filterPlace(path, text, err)
		v.add(at, path, wrong("simplify it, or remove steer", "cannot be put into rules of a card: %v", err))
	}
}

// beside checks the settings for joining a dispatcher.
func (v *validator) beside(path string, f *From) {
	at, priority := join(path, "beside"), join(path, "priority")
	v.check(within(f.Priority, 0, math.MaxInt32), priority, "%d is not from 0 to %d", f.Priority, math.MaxInt32)
	if !v.given(at, string(f.Beside)) {
		if _, given := v.places[priority]; given && !v.explained(priority) {
			v.refuse(priority, wrong("remove it, or say beside: libxdp", "orders the programs of a dispatcher, and this flow joins none"))
		}
		return
	}
	if v.explained(at) {
		return
	}
	v.checkErr(at, member(f.Beside, allBesides))
	if f.Mirror != "" {
		v.refuse(at, wrong("remove it, or mirror", "copies do not depend on the XDP program of the interface"))
	}
	v.check(f.Timestamps != TimestampsHardware, join(path, "timestamps"),
		"a program in a dispatcher cannot ask the card: say prefer or software, or remove beside")
}

// minHigh is the size of a receive batch.
const minHigh = 64

// watermarks checks the limits on frames in flight.
func (v *validator) watermarks(path string, f *Flow) {
	w, high, low := f.Watermarks, join(path, "high"), join(path, "low")
	_, given := v.places[path]
	if !given && w == (Watermarks{}) || v.explained(path) {
		return
	}
	frames := int(min(v.Region.Size, maxRegion) / Size(max(v.Region.Frame, 1)))
	if within(w.High, minHigh, frames) {
		v.check(within(w.Low, 1, w.High-1), low, "%d is not from 1 to %d, less than high", w.Low, w.High-1)
	} else {
		v.refuse(high, fmt.Errorf("%d is not from %d to %d, the frames of the region", w.High, minHigh, frames))
	}
	if i := slices.IndexFunc(f.Stages, func(s Stage) bool { return s.Sum != nil }); i >= 0 {
		v.refuse(path, wrong("remove them, or lower from.window", "a sum waits for messages of all clients, and must not be kept from them"))
	}
}

// Bounds of generated packets. An Ethernet frame has at least 60 bytes without its checksum.
const (
	minGenerated = 60
	maxRate      = 1_000_000_000
)

// generated checks the settings of generated packets. Each packet fills one frame, at the offset of
// received packets.
func (v *validator) generated(path string, f *From) {
	longest := Size(v.Region.Frame) - min(Size(v.Region.Frame), MessageOverhead)
	v.check(f.Generate >= minGenerated && f.Generate <= longest || v.explained("region.frame"), join(path, "generate"),
		"%d is not from %d to %d, which frames of %d have room for", f.Generate, minGenerated, longest, v.Region.Frame)
	v.check(within(f.Rate, 0, maxRate), join(path, "rate"), "%d is not from 0 to %d packets a second; 0 means as many as are taken", f.Rate, maxRate)
}
