package page

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/recent"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/addrlimit"
	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// sample is a status with what must not be on the public page.
func sample() status.Daemon {
	return status.Daemon{
		Version: "1", Started: time.Now().Add(-time.Minute), Region: status.Region{Bytes: 1 << 20, Pages: "2MiB", Frames: 256, Owners: map[string]int64{"pool": 200, "xdp": 56}, Ordinary: true},
		Flows: []status.Flow{
			{Name: "cap", Kind: "network-storage", State: status.Waiting, Error: "no space on /secret/disk", From: "eth1", To: "/secret/feed", Packets: 10, Bytes: 1000, Dropped: map[string]uint64{"lost_ring_full": 3, "filter_dropped": 4, "lost_missed": 0}, LostAt: time.Now(),
				CopiedBytes: map[string]uint64{"packed": 1000}, KernelBytes: map[string]uint64{"xdp": 500, "disk": 500},
				FrameTimes: &status.FrameTimes{Done: &latency.Distribution{Buckets: []latency.Bucket{{Below: 1024, Count: 4}, {Below: 8192, Count: 6}}}}},
			{Name: "fan", Kind: "rdma-rdma", State: status.Running, From: "192.0.2.1:7471", To: "192.0.2.2:7471", Sends: &status.Sends{Peers: []status.Peer{{Name: "p", Address: "192.0.2.2:7471", State: "connecting", Error: "from 192.0.2.2"}}}},
		},
	}
}

// TestPublic: what anybody may see has no paths, addresses and errors; the owner sees them.
func TestPublic(t *testing.T) {
	s := sample()
	public, err := json.Marshal(Make(&s, nil, nil, Public, time.Now()))
	testenv.Must(t, err)
	for _, hidden := range []string{"secret", "192.0.2"} {
		if strings.Contains(string(public), hidden) {
			t.Errorf("the public page has %q: %s", hidden, public)
		}
	}
	own, err := json.Marshal(Make(&s, nil, nil, Owner, time.Now()))
	testenv.Must(t, err)
	for _, shown := range []string{"no space on /secret/disk", "disk /secret/feed", "peer p, which is connecting: 192.0.2.2:7471: from 192.0.2.2", "RDMA 192.0.2.1:7471", "interface eth1"} {
		if !strings.Contains(string(own), shown) {
			t.Errorf("the owner's page has no %q: %s", shown, own)
		}
	}
}

// TestMake: the document has the numbers of the status.
func TestMake(t *testing.T) {
	s := sample()
	d := Make(&s, nil, nil, Public, time.Now())
	f := d.Flows[0]
	if f.Packets != 10 || f.Copied != 1000 || f.Kernel != 1000 || len(f.Lost) != 2 || f.Lost[1] != (Part{"lost_ring_full", 3}) {
		t.Errorf("%+v", f)
	}
	if want := []Bin{{1024, 4}, {2048, 0}, {4096, 0}, {8192, 6}}; len(f.Histogram) != 4 || f.Histogram[1] != want[1] || f.Histogram[3] != want[3] {
		t.Errorf("histogram %v, want %v", f.Histogram, want)
	}
	var all uint64
	for _, o := range d.Region.Owners {
		all += o.Count
	}
	if int64(all) != d.Region.Frames {
		t.Errorf("the owners have %d of %d frames", all, d.Region.Frames)
	}
	text := ""
	for i, one := range d.Findings {
		if i > 0 && d.Findings[i-1].Compare(one) > 0 {
			t.Errorf("%s stands before %s", d.Findings[i-1], one)
		}
		text += string(one.Severity) + ": " + one.String() + "\n"
	}
	for _, want := range []string{"error: flow cap has lost 3 (lost_ring_full): the worker came too late to the ring: use a larger from.ring", "error: flow cap waits: unifiedd status says why", "warning: the region is on ordinary pages"} {
		if !strings.Contains(text, want) {
			t.Errorf("no finding %q in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "filter_dropped") || strings.Contains(text, "flow fan waits") {
		t.Errorf("findings about what is no fault:\n%s", text)
	}
}

// TestShared: the document has programs, channels and states, and both audiences see their names, which /metrics has.
func TestShared(t *testing.T) {
	s := status.Daemon{
		Flows: []status.Flow{{Name: "f", Kind: "attach-state", State: status.Running, From: "program feed", To: "state book"}, {Name: "v", Kind: "witness", State: status.Running}},
		Programs: &status.Programs{Socket: "/secret/socket", Programs: []status.Program{{Name: "feed", Attached: true, PID: 4711, Attaches: 2, Ended: map[string]uint64{"gone": 1, "busy": 0}}},
			Channels: []status.Channel{{Name: "orders", Writer: "feed", Writing: true, Last: 9, Stalls: 1, Readers: []status.ChannelReader{{Program: "risk", Lag: 2, Lost: 3}}}}},
		States: []status.SharedState{{Name: "book", Position: 8, Entries: 4, Updates: 8, Refused: map[string]uint64{"too_long": 5}, Readers: []status.StateReader{{Program: "risk", Reading: true}},
			Remote: &status.StateServer{Listen: "192.0.2.1:1", Readers: 6}}},
	}
	d := Make(&s, nil, nil, Public, time.Now())
	if f := d.Flows[0]; f.From != "program feed" || f.To != "state book" || f.Unit != "messages" {
		t.Errorf("%+v", f)
	}
	if f := d.Flows[1]; f.From != "group" || f.To != "votes only" {
		t.Errorf("%+v", f)
	}
	for kind, want := range map[string]string{"storage-state": "records", "storage-nvme": "requests", "storage-network": "packets", "channel-rdma": "messages"} {
		f := makeFlow(&status.Flow{Kind: kind}, Public)
		if f.Unit != want {
			t.Errorf("a flow %s counts %s, want %s", kind, f.Unit, want)
		}
	}
	if p := d.Programs; len(p) != 1 || p[0].Name != "feed" || !p[0].Attached || p[0].Attaches != 2 || len(p[0].Ended) != 1 || p[0].Ended[0] != (Part{"gone", 1}) {
		t.Errorf("programs %+v", p)
	}
	if c := d.Channels; len(c) != 1 || c[0].Last != 9 || c[0].Stalls != 1 || len(c[0].Readers) != 1 || c[0].Readers[0] != (Reader{"risk", false, 2, 3}) {
		t.Errorf("channels %+v", c)
	}
	if st := d.States; len(st) != 1 || st[0].Position != 8 || st[0].Entries != 4 || st[0].Peers != 6 || len(st[0].Readers) != 1 || !st[0].Readers[0].Reading {
		t.Errorf("states %+v", st)
	}
	text, err := json.Marshal(d)
	testenv.Must(t, err)
	for _, hidden := range []string{"secret", "192.0.2", "4711"} {
		if strings.Contains(string(text), hidden) {
			t.Errorf("the public page has %q: %s", hidden, text)
		}
	}
	for _, want := range []string{"reader risk of channel orders has lost 3 messages", "state book has refused 5 updates: too_long"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no finding %q in %s", want, text)
		}
	}
}

// serve serves the page and returns its address.
func serve(t *testing.T, s *Server) string {
	t.Helper()
	m := http.NewServeMux()
	s.Register(m)
	server := httptest.NewServer(m)
	t.Cleanup(func() { s.Close(); server.Close() })
	return server.URL
}

// TestFiles: every file has the policy, and names nothing from elsewhere and no script or style in the markup.
func TestFiles(t *testing.T) {
	at := serve(t, New(sample, nil, nil, Public))
	for path := range files {
		answer, err := http.Get(at + path)
		testenv.Must(t, err)
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusOK || len(text) == 0 {
			t.Errorf("%s: %d, %d bytes, %v", path, answer.StatusCode, len(text), err)
		}
		if got := answer.Header.Get("Content-Security-Policy"); !strings.HasPrefix(got, "default-src 'none'") || strings.Contains(got, "unsafe") {
			t.Errorf("%s: the policy is %q", path, got)
		}
		if found := regexp.MustCompile(`(?:src|href)="(?:https?:)?//|@import|url\(|<script>|<style|style="|\bon[a-z]+="|innerHTML|eval\(`).FindString(string(text)); found != "" {
			t.Errorf("%s has %q", path, found)
		}
	}
}

// TestEvents: a page gets a document at once and then one a second, made once for all pages. Closing the server
// ends the events.
func TestEvents(t *testing.T) {
	made := 0
	s := New(func() status.Daemon { made++; return sample() }, nil, recent.New(slog.DiscardHandler), Public)
	at := serve(t, s)
	var readers []*bufio.Scanner
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, "GET", at+"/events", nil)
		testenv.Must(t, err)
		answer, err := http.DefaultClient.Do(r)
		testenv.Must(t, err)
		defer answer.Body.Close()
		if kind := answer.Header.Get("Content-Type"); kind != "text/event-stream" {
			t.Errorf("the events are %s", kind)
		}
		lines := bufio.NewScanner(answer.Body)
		lines.Buffer(nil, 1<<20)
		readers = append(readers, lines)
	}
	for range 2 {
		for _, r := range readers {
			if d := next(t, r); len(d.Flows) != 2 || d.Flows[0].Name != "cap" {
				t.Errorf("the event has %+v", d)
			}
		}
	}
	s.mu.Lock()
	if made > 4 {
		t.Errorf("%d documents for two events of three pages", made)
	}
	s.mu.Unlock()
	s.Close()
	for _, r := range readers {
		for r.Scan() { // ends with the events
		}
	}
}

func next(t *testing.T, r *bufio.Scanner) (d Document) {
	t.Helper()
	for r.Scan() {
		if text, ok := strings.CutPrefix(r.Text(), "data: "); ok {
			testenv.Must(t, json.Unmarshal([]byte(text), &d))
			return d
		}
	}
	t.Fatalf("the events end: %v", r.Err())
	return d
}

// TestViewers: however many pages some hosts have open, a page of another host gets its events. The newest replaces the
// oldest.
func TestViewers(t *testing.T) {
	s := New(sample, nil, nil, Public)
	hosts := [3]netip.Prefix{}
	for i := range hosts {
		hosts[i] = addrlimit.Host(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}))
	}
	var all []*viewer
	for i := range 4 * hostViewers {
		all = append(all, s.enter(hosts[i%2]))
	}
	replaced := func() (n int) {
		for _, v := range all {
			select {
			case <-v.replaced:
				n++
			default:
			}
		}
		return n
	}
	if n := replaced(); n != 2*hostViewers || s.open.Len() != viewers {
		t.Errorf("%d of %d pages are replaced, and %d are open", n, len(all), s.open.Len())
	}
	at := serve(t, s) // from a third host
	answer, err := http.Get(at + "/events")
	testenv.Must(t, err)
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK || s.open.Len() != viewers || replaced() != 2*hostViewers+1 {
		t.Errorf("a page of another host is answered with %d; %d are replaced", answer.StatusCode, replaced())
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	next(t, lines)
	for range hostViewers { // of the test's host
		s.enter(addrlimit.Host(netip.MustParseAddr("127.0.0.1")))
	}
	for lines.Scan() { // ends
	}
}

// TestPause: documents that take long are made less often, so that they cost at most a hundredth of a processor.
func TestPause(t *testing.T) {
	made := 0
	busy := func() {
		for begun := used(); used()-begun < 50*time.Millisecond; {
		}
	}
	s := New(func() status.Daemon { made++; busy(); return sample() }, nil, nil, Public)
	now := time.Now()
	for range 3 {
		if _, err := s.event(now); err != nil {
			t.Fatal(err)
		}
		now = now.Add(period)
	}
	if pause := s.pause(); made != 1 || pause < 5*time.Second {
		t.Errorf("%d documents, the next one in %v", made, pause)
	}
	quick := New(sample, nil, nil, Public)
	if _, err := quick.event(now); err != nil || quick.pause() < period {
		t.Errorf("the next one in %v, %v", quick.pause(), err)
	}
	quick.cost, quick.text = 0, make([]byte, 10<<20)
	quick.enter(netip.Prefix{})
	one := quick.pause()
	for i := range viewers - 1 {
		quick.enter(addrlimit.Host(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})))
	}
	if all := quick.pause(); one < period || all < viewers*one*9/10 {
		t.Errorf("10 MiB are sent to one page each %v, and to %d each %v", one, viewers, all)
	}
}

// BenchmarkEvent: the document of 10000 flows, of which one is made a second, however many pages are open.
func BenchmarkEvent(b *testing.B) {
	many := sample()
	for len(many.Flows) < 10000 {
		many.Flows = append(many.Flows, many.Flows[0])
	}
	s := New(func() status.Daemon { return many }, nil, nil, Public)
	for now := time.Now(); b.Loop(); now = now.Add(time.Hour) {
		if _, err := s.event(now); err != nil {
			b.Fatal(err)
		}
	}
}
