package config

import (
	"math"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v4"
)

// Order is where a flow sends orders: a TCP connection that the kernel keeps, and whose segments leave by AF_XDP.
type Order struct {
	Connect   string // host:port of the exchange; empty: a program connects
	Given     string // name of the program that gives connections; empty: the daemon connects
	Peer      string // host:port that such a connection must be to; empty: any
	Interface string // where the connection's packets leave and arrive
	Queue     int    // the transmit queue
	ZeroCopy  ZeroCopy
	Ring      int           // entries of the transmit ring, a power of two
	Replies   bool          // the program gets what the exchange sends; false: it is counted and dropped
	Retry     time.Duration // how long to wait before connecting again
	SendTimes bool          // the kernel, or the card, says when each segment has left
	Times     string        // absolute path of a file for the times of each order; empty: none
	Limits    OrderLimits
	Rules     []OrderRule // with KindNetworkOrder: what makes orders of messages, the first one that fits
	Counter   uint64      // the first number of the counter in orders of rules
	Login     *Login      // what is sent first on a connection; nil: nothing
	Heartbeat *Heartbeat  // what is sent when no order has left for a time; nil: nothing
}

// OrderLimits are the risk limits of a flow. A zero value limits nothing.
type OrderLimits struct {
	Rate  int  // orders a second
	Burst int  // orders at once; only with Rate
	Size  Size // bytes of an order
	Price *PriceBand
	// Length is where orders of a program have their length, so that each message is one of them.
	Length *OrderLength
}

// OrderLength is where an order has its length.
type OrderLength struct {
	Protocol LengthProtocol // one whose orders say it in text; empty: the other fields say where
	Offset   int            // of the first byte in an order
	Bits     int            // of the length, an unsigned number: 16 or 32
	Order    ByteOrder
	Add      int // bytes of an order that its length does not count
}

// LengthProtocol is a protocol whose messages have their length in text.
type LengthProtocol string

// FIX has messages of TAG=VALUE, whose second field is the length (9=).
const FIX LengthProtocol = "fix"

var allLengthProtocols = []LengthProtocol{FIX}

// PriceBand limits the price of orders.
type PriceBand struct {
	Offset   int    // of the price in an order
	Bits     int    // of the price, which is an unsigned number, big endian: 32 or 64
	Min, Max uint64 // prices that may leave
	At       int    // the band is for messages that have Is at this offset
	Is       string // empty: for all messages
}

// Bounds and defaults of orders.
const (
	maxOrderRate    = 1_000_000
	maxOrderOffset  = 65535
	maxRetry        = time.Hour
	defaultRetry    = time.Second
	defaultSendRing = 512
	defaultBits     = 32

	defaultLengthBits = 16
	defaultOrder      = KiB
	maxOrder          = 1460 // bytes: more never fit a segment of Ethernet
)

func newOrder() *Order {
	return &Order{ZeroCopy: ZeroCopyPrefer, Ring: defaultSendRing, Retry: defaultRetry, SendTimes: true, Counter: 1}
}

// readOrder reads where orders go.
func readOrder(d *decoder, f *Flow, _ any) read {
	return func(path string, n *yaml.Node) {
		f.To.Order = newOrder()
		d.order(path, n, f.To.Order)
	}
}

func (d *decoder) order(path string, n *yaml.Node, o *Order) {
	d.mapping(path, n, fields{
		"connect":    set(d, &o.Connect, parseText),
		"given":      set(d, &o.Given, parseText),
		"peer":       set(d, &o.Peer, parseText),
		"interface":  set(d, &o.Interface, parseText),
		"queue":      set(d, &o.Queue, parseInt),
		"zero_copy":  set(d, &o.ZeroCopy, oneOf(allZeroCopies)),
		"ring":       set(d, &o.Ring, parseInt),
		"replies":    set(d, &o.Replies, parseBool),
		"retry":      set(d, &o.Retry, parseDuration),
		"send_times": set(d, &o.SendTimes, parseBool),
		"times":      set(d, &o.Times, parseText),
		"rules":      func(path string, n *yaml.Node) { d.orderRules(path, n, &o.Rules) },
		"counter":    set(d, &o.Counter, parseUnsigned),
		"login":      func(path string, n *yaml.Node) { d.login(path, n, o) },
		"heartbeat":  func(path string, n *yaml.Node) { d.heartbeat(path, n, o) },
		"limits": func(path string, n *yaml.Node) {
			l := &o.Limits
			d.mapping(path, n, fields{
				"rate":  set(d, &l.Rate, parseInt),
				"burst": set(d, &l.Burst, parseInt),
				"size":  set(d, &l.Size, parseSize),
				"length": func(path string, n *yaml.Node) {
					o := &OrderLength{Bits: defaultLengthBits, Order: BigEndian}
					l.Length = o
					d.mapping(path, n, fields{
						"protocol": set(d, &o.Protocol, oneOf(allLengthProtocols)),
						"offset":   set(d, &o.Offset, parseInt),
						"bits":     set(d, &o.Bits, parseInt),
						"order":    set(d, &o.Order, oneOf(allByteOrders)),
						"add":      set(d, &o.Add, parseInt),
					})
				},
				"price": func(path string, n *yaml.Node) {
					b := &PriceBand{Bits: defaultBits, Max: math.MaxUint64}
					l.Price = b
					d.mapping(path, n, fields{
						"offset": set(d, &b.Offset, parseInt),
						"bits":   set(d, &b.Bits, parseInt),
						"min":    set(d, &b.Min, parseUnsigned),
						"max":    set(d, &b.Max, parseUnsigned),
						"at":     set(d, &b.At, parseInt),
						"is":     set(d, &b.Is, parseText),
					})
				},
			})
		},
	})
}

// orders checks the sink of a flow that sends orders.
func (v *validator) orders(path string, f *Flow) {
	o, at := f.To.Order, join(path, "order")
	if o == nil || v.explained(at) {
		return
	}
	if f.Kind() == "" {
		v.refuse(at, wrong("say from: {attach: …} or from: {interface: …}", "orders are an attached program's, or rules make them of packets"))
		return
	}
	v.orderSource(at, f)
	v.connection(at, o)
	if name := join(at, "interface"); v.need(name, o.Interface, "the name of a network interface") {
		v.checkErr(name, checkInterface(o.Interface))
	}
	v.check(within(o.Queue, 0, maxQueue), join(at, "queue"), "%d is not from 0 to %d", o.Queue, maxQueue)
	v.checkErr(join(at, "zero_copy"), member(o.ZeroCopy, allZeroCopies))
	v.check(within(o.Ring, MinRing, MaxRing) && powerOfTwo(uint64(o.Ring)), join(at, "ring"), "%d is not a power of two from %d to %d", o.Ring, MinRing, MaxRing)
	v.check(o.Retry > 0 && o.Retry <= maxRetry, join(at, "retry"), "%s is not a time up to %s", o.Retry, maxRetry)
	if o.Times != "" {
		v.checkErr(join(at, "times"), checkPath(o.Times, maxFilePath))
	}
	if p := v.Config.Program(f.From.Attach); o.Replies && f.Kind() == KindAttachOrder && p != nil && p.In == 0 {
		v.refuse(join(at, "replies"), wrong("say in: there, such as in: 4MiB, or remove it", "program %s has no memory to read: attach.programs gives it none", quote(p.Name)))
	}
	if message := join(parent(path), "from.message"); f.Kind() == KindAttachOrder && !v.explained(message) {
		v.check(f.From.Message <= maxOrder, v.first(message, at), "orders of %s do not fit a segment: at most %d are possible", f.From.Message, maxOrder)
	}
	v.orderLimits(join(at, "limits"), o)
	v.orderLength(join(at, "limits"), f)
}

// orderLength checks where orders have their length.
func (v *validator) orderLength(at string, f *Flow) {
	l, where := &f.To.Order.Limits, join(at, "length")
	switch limited := l.Rate != 0 || l.Size != 0 || l.Price != nil; {
	case v.explained(where):
	case l.Length == nil && limited && f.Kind() == KindAttachOrder:
		v.refuse(at, wrong("say where its length is, such as length: {offset: 0, bits: 16, add: 2} for SoupBinTCP, or length: {protocol: fix}",
			"limits of a program's orders need length: it might send an order in parts, or several at once"))
	case l.Length == nil:
	case f.Kind() != KindAttachOrder:
		v.refuse(where, wrong("remove it", "has a meaning only with from.attach: each order of a rule is whole"))
	case l.Length.Protocol != "":
		v.checkErr(join(where, "protocol"), member(l.Length.Protocol, allLengthProtocols))
		if *l.Length != (OrderLength{Protocol: l.Length.Protocol, Bits: defaultLengthBits, Order: BigEndian}) {
			v.refuse(where, wrong("keep one of them", "with protocol the other settings have no meaning"))
		}
		if price := join(at, "price"); l.Price != nil && !v.explained(price) {
			v.refuse(price, wrong("remove it, or have the program check prices", "prices of %s are text, and a band is for binary numbers", l.Length.Protocol))
		}
	default:
		v.check(l.Length.Bits == 16 || l.Length.Bits == 32, join(where, "bits"), "%d is not 16 or 32", l.Length.Bits)
		v.check(within(l.Length.Offset, 0, maxOrder), join(where, "offset"), "%d is not from 0 to %d", l.Length.Offset, maxOrder)
		v.check(within(l.Length.Add, 0, maxOrder), join(where, "add"), "%d is not from 0 to %d", l.Length.Add, maxOrder)
		v.checkErr(join(where, "order"), member(l.Length.Order, allByteOrders))
	}
}

// connection checks where a connection comes from.
func (v *validator) connection(at string, o *Order) {
	to, given, peer := join(at, "connect"), join(at, "given"), join(at, "peer")
	if v.given(peer, o.Peer) && o.Given != "" {
		v.checkErr(peer, checkExchange(o.Peer))
	}
	switch {
	case !v.given(given, o.Given):
		if v.need(to, o.Connect, "the address and port of the exchange") {
			v.checkErr(to, checkExchange(o.Connect))
		}
		if v.given(peer, o.Peer) {
			v.refuse(peer, wrong("say it in connect", "has a meaning only with given: the daemon connects"))
		}
	case v.given(to, o.Connect):
		v.refuse(given, wrong("remove one of them", "a program gives connections, or the daemon connects (connect)"))
	default:
		v.known(given, o.Given)
		if retry := join(at, "retry"); o.Retry != defaultRetry && !v.explained(retry) {
			v.refuse(retry, wrong("remove it", "has a meaning only with connect: program %s connects", quote(o.Given)))
		}
	}
}

// checkExchange requires the address of a host on a network, or its name, with a port.
func checkExchange(s string) error {
	host, port, err := net.SplitHostPort(s)
	number, bad := strconv.ParseUint(port, 10, 16)
	ip, noIP := netip.ParseAddr(host)
	if err != nil || bad != nil || number == 0 || noIP == nil && !CanConnect(ip) || noIP != nil && !isHostName(host) {
		return wrong("write it as 10.0.0.9:4001, [2001:db8::9]:4001 or exchange.example.net:4001", "%s is not the address or the name of a host on a network, and a port", quote(s))
	}
	return nil
}

// CanConnect reports whether an address can be that of an exchange: of a host on a network. A name may stand for others, too.
func CanConnect(ip netip.Addr) bool {
	return !ip.IsUnspecified() && !ip.IsMulticast() && !ip.IsLoopback() && ip.Zone() == "" && ip.Unmap() != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// isHostName reports whether a text can be the name of a host (RFC 1123, section 2.1), with underscores, which some have.
func isHostName(s string) bool {
	s = strings.TrimSuffix(s, ".")
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || strings.ContainsFunc(label, func(r rune) bool {
			return r != '-' && r != '_' && (r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r))
		}) {
			return false
		}
	}
	last := s[strings.LastIndexByte(s, '.')+1:]
	return len(s) <= 253 && strings.ContainsFunc(last, unicode.IsLetter) // or it is a wrong address, such as 10.0.0.300
}

func (v *validator) orderLimits(at string, o *Order) {
	l := &o.Limits
	v.check(within(l.Rate, 0, maxOrderRate), join(at, "rate"), "%d is not from 0 to %d orders a second; 0 means no limit", l.Rate, maxOrderRate)
	if burst := join(at, "burst"); l.Rate == 0 && !v.explained(join(at, "rate")) {
		v.check(l.Burst == 0, burst, "has a meaning only with rate: it is how many orders may leave at once")
	} else {
		v.check(within(l.Burst, 0, maxOrderRate), burst, "%d is not from 1 to %d", l.Burst, maxOrderRate)
	}
	v.check(l.Size <= maxOrder, join(at, "size"), "%s are more than %d, the longest order", l.Size, maxOrder)
	b, price := l.Price, join(at, "price")
	if b == nil || v.explained(price) {
		return
	}
	v.check(b.Bits == 32 || b.Bits == 64, join(price, "bits"), "%d is not 32 or 64", b.Bits)
	v.check(within(b.Offset, 0, maxOrderOffset), join(price, "offset"), "%d is not from 0 to %d", b.Offset, maxOrderOffset)
	v.check(within(b.At, 0, maxOrderOffset), join(price, "at"), "%d is not from 0 to %d", b.At, maxOrderOffset)
	v.check(b.Min <= b.Max, v.first(join(price, "min"), price), "%d is more than max, which is %d", b.Min, b.Max)
	v.check(b.Is != "" || b.At == 0, join(price, "at"), "has a meaning only with is: it says where in a message that text stands")
	_, min := v.places[join(price, "min")]
	_, max := v.places[join(price, "max")]
	v.check(min || max || b.Min > 0 || b.Max < math.MaxUint64, price, "min, max or both are needed")
}
