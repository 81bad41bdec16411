package demo

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// The traffic: the filter accepts trafgen's packets and leaves ping's to the host.
const (
	packets    = 90_000
	gap        = 30 // microseconds between packets; trafgen's --rate sends bursts
	port       = 5000
	filterText = "udp and dst port 5000"
	pings      = 10
)

// sizes are the lengths of the packets, used in rotation, without the checksum that a wire adds.
var sizes = []int{126, 512, 1514}

// headers are Ethernet, IPv4 and UDP; a counting byte follows.
const headers = 14 + 20 + 8

func sizeList() string {
	var words []string
	for _, n := range sizes {
		words = append(words, strconv.Itoa(n))
	}
	return strings.Join(words, ", ")
}

// traffic has the counts of the senders.
type traffic struct {
	packets, bytes  uint64 // sent by trafgen
	pings, answered uint64
}

// trafgenConfig returns the packets in trafgen's language.
func trafgenConfig() string {
	var b strings.Builder
	for _, n := range sizes {
		fmt.Fprintf(&b, "{ eth(da=%s, sa=%s), ipv4(saddr=%s, daddr=%s, ttl=64), udp(sp=40000, dp=%d), dinc(0,255), fill(0x61, %d) }\n",
			captured.mac(receivingEnd), captured.mac(sendingEnd), captured.ip(sendingEnd), captured.ip(receivingEnd), port, n-headers-1)
	}
	return b.String()
}

var (
	sentPackets = regexp.MustCompile(`(\d+) packets outgoing`)
	sentBytes   = regexp.MustCompile(`(\d+) bytes outgoing`)
	pinged      = regexp.MustCompile(`(\d+) packets transmitted, (\d+) received`)
)

// send runs both senders at once and returns their own counts.
func (s *stage) send(ctx context.Context, file string) (t traffic, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- s.a.do(func() (err error) { t.pings, t.answered, err = ping(ctx); return err })
	}()
	var out string
	err = s.a.do(func() (err error) {
		out, err = runProgram(ctx, "trafgen", "--dev", captured.name, "--conf", file, "--num", strconv.Itoa(packets),
			"--gap", strconv.Itoa(gap)+"us", "--cpus", "1", "--no-sock-mem", "--notouch-irq")
		return err
	})
	if err != nil {
		cancel()
		<-ended
		return t, err
	}
	if t.packets, err = number(out, sentPackets, 1); err == nil {
		t.bytes, err = number(out, sentBytes, 1)
	}
	if e := <-ended; err == nil {
		err = e
	}
	return t, err
}

// ping sends echo requests to the kernel of the receiving end. Lost answers are not an error.
func ping(ctx context.Context) (sent, answered uint64, err error) {
	out, err := runProgram(ctx, "ping", "-q", "-n", "-c", strconv.Itoa(pings), "-i", "0.2", "-W", "2", captured.ip(receivingEnd).String())
	if err != nil && !pinged.MatchString(err.Error()) {
		return 0, 0, err
	} else if err != nil {
		out = err.Error()
	}
	if sent, err = number(out, pinged, 1); err != nil {
		return 0, 0, err
	}
	answered, err = number(out, pinged, 2)
	return sent, answered, err
}

// number finds a number in the output of a program.
func number(text string, re *regexp.Regexp, group int) (uint64, error) {
	m := re.FindStringSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("no %q in what the program printed: %q", re, text)
	}
	return strconv.ParseUint(m[group], 10, 64)
}
