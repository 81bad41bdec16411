package attach

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/flows/attached"
	"github.com/unifiedd/unifiedd/flows/journal"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// libraryCase is a series of steps of a program: a command, = and the answer. libunifiedd/testdata/driver.c describes the
// commands. Behind & the answer is that of a later step without a command. Behind @ a command or answer is that of a second
// program, which uses the library for Go. ! is for the daemon. An answer is a regular expression, in which * is any number.
type libraryCase struct {
	name, steps string
	records     uint64 // in the log at the end, all of session 7
	nowhere     bool   // the flow takes messages and keeps none
	setting     string // of the daemon, instead of that for the programs writer and reader
	image       int    // bytes of a file whose blocks a flow serves
	exchange    bool   // an exchange is behind an interface
}

var libraryCases = []libraryCase{
	{name: "receipts", steps: `attach SOCKET writer 7 = attached; send orders 0 = opened 1; append 1000 300 = done 1 1000 1000;
		append 1 1025 = error invalid none; append 1 0 = error invalid none; append 3000 1024 = done 1001 4000 4000;
		claim 100 = claimed 100; append 1000 20 = done 4001 5000 5000; close = closed;
		send orders 64 = opened 5001; append 1000 1 = done 5001 6000 6000; detach = detached`, records: 6000},
	{name: "packets", steps: `attach SOCKET reader 7 = attached; receive md 0 = opened 0; take 1000 20000 = took 1000 1000 0 1559475;
		hold 100 20000 = took 100 1100 0 152405; take 50 20000 = took 50 1150 0 77250; releaseall = released 100;
		take 10000 20000 = took 10000 11150 0 15845049; detach = detached`},
	{name: "refused", steps: `attach SOCKET nobody 7 = error refused bad_name; attach SOCKET writer 7 = attached;
		send nothing 0 = error refused no_such_flow; receive orders 0 = error refused no_such_flow;
		send orders 5000 = error refused over_quota; send orders 0 = opened 1; send orders 0 = error refused busy;
		append 10 10 = done 1 10 10; !kill; send orders 0 = error gone none; !run`, records: 10},
	{name: "daemon restarted between messages", steps: `attach SOCKET writer 7 = attached; send orders 0 = opened 1;
		append 100 50 = done 1 100 100; !kill; append 30 50 &; !run; = done 101 130 130; claim 40 = claimed 40; !kill; !run;
		append 2000 1000 = done 131 2130 2130; detach = detached;
		attach SOCKET writer 7 = attached; send orders 0 = opened 2131`, records: 2130},
	{name: "daemon restarted under load", steps: `attach SOCKET writer 7 = attached; send orders 0 = opened 1; append 30000 500 &; !kill; !run;
		= done 1 30000 *; append 100 50 = done 30001 30100 30100`, records: 30100},
	{name: "daemon restarted twice under load", steps: `attach SOCKET writer 7 = attached; send orders 0 = opened 1; append 30000 500 &;
		!kill; !run; !kill; !run; = done 1 30000 *; append 100 50 = done 30001 30100 30100`, records: 30100},
	{name: "a flow that keeps nothing", steps: `attach SOCKET writer 7 = attached; send orders 0 = opened 1; append 100 50 = done 1 100 100;
		!kill; !run; append 100 50 = done 101 200 100; append 30000 500 &; !kill; !run; = done 201 30200 *`, nowhere: true},
	{name: "daemon restarted while packets are held", steps: `attach SOCKET reader 7 = attached; receive md 0 = opened 0;
		hold 100 20000 = took 100 100 0 *; !kill; !run; take 2000 20000 = took 2000 * 0 *;
		hold 50 20000 = took 50 * 0 *; releaseall = released 150; take 5000 20000 = took 5000 * 0 *`},
	{name: "flow restarted", steps: `attach SOCKET writer 7 = attached; send orders 0 = opened 1; append 100 50 = done 1 100 100;
		claim 200 = claimed 200; !stop orders; append 200 1000 &; !start orders; = done 101 300 300;
		append 2000 1000 &; !stop orders; !start orders; = done 301 2300 *`, records: 2300},
}

// programLibrary runs commands, one after the other.
type programLibrary interface {
	do(line string) (answer string)
	end() error
}

// TestLibrary: the libraries for Go and C answer each command alike, over restarts of the daemon and of a flow, and each
// message is in the log once.
func TestLibrary(t *testing.T) {
	checked, plain := buildChecked(t), ""
	if !testing.Short() {
		plain = buildDriver(t)
	}
	for _, c := range slices.Concat(libraryCases, channelCases, stateCases, blockCases, givenCases) {
		for name, driver := range map[string]string{"Go": "", "C": plain, "C with sanitizers": checked} {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				if driver != checked {
					testenv.Long(t, "the library with sanitizers has the same steps, and flows/attached tests that for Go")
				}
				ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(2*time.Minute))
				defer cancel()
				testenv.Leaks(t)
				at, iface, exchange := newPlace(t, c.exchange)
				c := c
				c.setting, c.steps = strings.ReplaceAll(c.setting, "IFACE", iface), strings.ReplaceAll(c.steps, "EXCHANGE", exchange)
				var l programLibrary = &goLibrary{Context: ctx, t: t, at: at}
				if driver != "" {
					l = startDriver(ctx, t, at, driver)
				}
				c.run(t, at, l, &goLibrary{Context: ctx, t: t, at: at})
			})
		}
	}
}

// buildDriver builds the library and the driver, as a user of the library would.
func buildDriver(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	driver := filepath.Join(dir, "driver")
	buildLibrary(t, dir)
	build(t, compile(t)+sources(t, "testdata/driver*.c")+" -o "+driver+linked(dir))
	return driver
}

// checked is the directory of the driver with sanitizers; empty: it is not built yet.
var checked string

// buildChecked builds the driver and the library with sanitizers, once.
func buildChecked(t *testing.T) (driver string) {
	t.Helper()
	if checked == "" {
		dir, err := os.MkdirTemp("", "unifiedd-checked-")
		testenv.Must(t, err)
		checked = dir
		build(t, compile(t)+sources(t, "testdata/driver*.c")+" "+sources(t, "*.c")+" -o "+filepath.Join(dir, "driver")+" -g -fsanitize=address,undefined -fno-sanitize-recover")
	}
	return filepath.Join(checked, "driver")
}

// sources returns the library's files of a pattern.
func sources(t *testing.T, pattern string) string {
	t.Helper()
	all, err := filepath.Glob(libunifiedd + pattern)
	if err != nil || len(all) == 0 {
		t.Fatalf("%s: %d sources, %v", pattern, len(all), err)
	}
	return strings.Join(all, " ")
}

// libunifiedd is where the library's source is.
const libunifiedd = "../../libunifiedd/"

// buildLibrary builds the library in a directory.
func buildLibrary(t *testing.T, dir string) {
	t.Helper()
	build(t, testenv.Tool(t, "make")+" -s -C "+libunifiedd+" OUT="+dir+" all")
}

// compile is the beginning of a command that compiles a program, and linked the end, with the library in a directory.
func compile(t *testing.T) string {
	return testenv.Tool(t, "cc") + " -std=c11 -Wall -Wextra -Werror -O2 -pthread -I" + libunifiedd + " "
}

func linked(dir string) string { return " -L" + dir + " -lunifiedd -Wl,-rpath," + dir }

// build runs a command of words.
func build(t *testing.T, command string) {
	t.Helper()
	words := strings.Fields(command)
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
}

// config returns the configuration of the daemon of a case.
func (c *libraryCase) config(socket, log string) string {
	if c.setting != "" {
		return strings.NewReplacer("SOCKET", socket, "USER", strconv.Itoa(os.Getuid()), "IMAGE", filepath.Join(filepath.Dir(log), "image")).Replace(c.setting)
	}
	flow := `md, from: {generate: 200, rate: 50000}, to: {attach: reader, policy: wait}`
	if c.nowhere {
		flow = `orders, from: {attach: writer, message: 1KiB}, to: {discard: true}`
	}
	if c.records > 0 {
		flow = `orders, from: {attach: writer, message: 1KiB}, to: {file: ` + log + `, acknowledge: written, segment: {size: 8MiB}}`
	}
	return fmt.Sprintf(`
region: {size: 32MiB, pages: ordinary}
workers: [{name: main}]
attach: {socket: %s, programs: [{name: writer, user: "%d", out: 4MiB}, {name: reader, user: "%[2]d", in: 4MiB}]}
flows: [{name: %s}]
`, socket, os.Getuid(), flow)
}

func (c *libraryCase) run(t *testing.T, at daemon.Place, l, second programLibrary) {
	dir := t.TempDir()
	if c.image > 0 {
		dir = testenv.DiskDir(t)
		writeImage(t, filepath.Join(dir, "image"), c.image)
	}
	socket, log := filepath.Join(dir, "attach.sock"), filepath.Join(dir, "orders")
	text := c.config(socket, log)
	d := daemon.Launch(t, program, at, dir, text)
	d.Begun(t) // a flow may wait for a connection
	answer := map[programLibrary]chan string{l: make(chan string, 1), second: make(chan string, 1)}
	for step := range strings.SplitSeq(c.steps, ";") {
		one, by := strings.CutPrefix(strings.TrimSpace(step), "@")
		who := map[bool]programLibrary{false: l, true: second}[by]
		say, want, answers := strings.Cut(one, "=")
		say, want = strings.TrimSpace(strings.ReplaceAll(say, "SOCKET", socket)), strings.TrimSpace(want)
		switch what, of, _ := strings.Cut(say, " "); {
		case say == "!run":
			d = daemon.Launch(t, program, at, dir, text)
			d.Begun(t) // a flow may wait for a connection
		case say == "!kill":
			time.Sleep(20 * time.Millisecond) // a command in the background goes on
			d.Kill()
		case what == "!stop", what == "!start":
			if out, err := d.Control(what[1:], of); err != nil {
				t.Fatalf("%s: %v\n%s", say, err, out)
			}
		case what == "!closed": // until the daemon has closed the reader of a channel
			d.Until(t, "the reader to be closed", func(s *status.Daemon) bool {
				return !slices.ContainsFunc(s.Programs.Channels, func(c status.Channel) bool { return c.Name == of && c.Readers[0].Reading })
			})
		case what == "!reader": // until the daemon says of the reader of a channel how far it lags, and what it has lost
			d.Until(t, say, func(s *status.Daemon) bool {
				return slices.ContainsFunc(s.Programs.Channels, func(c status.Channel) bool {
					return fmt.Sprintf("%s %d %d", c.Name, c.Readers[0].Lag, c.Readers[0].Lost) == of
				})
			})
		case say != "":
			go func() { answer[who] <- who.do(strings.TrimSuffix(say, " &")) }()
		}
		if !answers {
			continue
		}
		got := <-answer[who]
		for retries(say, got, want) {
			time.Sleep(time.Millisecond)
			got = who.do(say)
		}
		if like := "^(" + strings.ReplaceAll(want, "*", `\d+`) + ")$"; !regexp.MustCompile(like).MatchString(got) {
			t.Fatalf("%s: %q instead of %q: %v\n%s", step, got, want, errors.Join(l.end(), second.end()), d.Log)
		}
	}
	if err := errors.Join(l.end(), second.end()); err != nil || regexp.MustCompile(`reason=bad_[^n]`).MatchString(d.Log.String()) {
		t.Errorf("%v\n%s", err, d.Log)
	}
	if c.records == 0 {
		return // the flow would wait for the program
	}
	d.Terminate(t)
	if n := readLog(t, log); n != c.records {
		t.Errorf("the log has %d messages instead of %d", n, c.records)
	}
}

// retries says that the daemon has not noticed yet what came before: the last detach, or that the ring of a channel is mapped.
func retries(say, got, want string) bool {
	return got != want && got == "error refused busy" && (strings.HasPrefix(say, "attach") || strings.HasPrefix(say, "follow") || strings.HasPrefix(say, "writer"))
}

// readLog checks that a log has each message once, in order, and returns how many.
func readLog(t *testing.T, path string) (n uint64) {
	l, err := journal.Open(path)
	testenv.Must(t, err)
	defer l.Close()
	r := l.Reader(1)
	defer r.Close()
	for ; ; n++ {
		one, err := r.Next()
		if errors.Is(err, io.EOF) {
			return n
		}
		bad := err != nil || one.Session != 7 || one.Sequence != n+1 || one.Position != n+1
		for i, b := range one.Payload {
			bad = bad || b != byte(uint64(i)+one.Sequence)
		}
		if bad {
			t.Fatalf("record %d is message %d of session %d: %v\n% x", n+1, one.Sequence, one.Session, err, one.Payload)
		}
	}
}

// driver is a running libunifiedd/testdata/driver.c.
type driver struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startDriver(ctx context.Context, t *testing.T, at daemon.Place, path string) *driver {
	d := &driver{Cmd: at.Command(path)}
	stop := context.AfterFunc(ctx, func() { _ = d.Process.Kill() }) // it may have ended
	t.Cleanup(func() { stop() })
	d.Stderr = os.Stderr
	in, ierr := d.StdinPipe()
	out, oerr := d.StdoutPipe()
	testenv.Must(t, ierr, oerr, d.Start())
	d.in, d.out = in, bufio.NewReader(out)
	return d
}

func (d *driver) do(line string) string {
	_, _ = fmt.Fprintln(d.in, line) // no answer shows that it has ended
	answer, _ := d.out.ReadString('\n')
	return strings.TrimSpace(answer)
}

// end ends the driver. It fails if a sanitizer has found something.
func (d *driver) end() error { return errors.Join(d.in.Close(), d.Wait()) }

// goLibrary has the driver's commands on flows/attached.
type goLibrary struct {
	context.Context
	client   *attached.Client
	sender   *attached.Sender
	receiver *attached.Receiver
	ports    []io.Closer
	frames   []attached.Frame // claimed
	held     []attached.Message
	writer   *attached.ChannelWriter // of the channel that is open,
	follower *attached.ChannelReader // or its reader
	state    *attached.State
	blocks   *attached.BlockReader
	at       place
	t        *testing.T
	conn     *net.TCPConn // of connect
	given    *attached.Given
	stateRun uint64 // of the last position
	churned  uint64 // updates of churn
}

func (g *goLibrary) do(line string) string {
	answer, err := g.run(strings.Fields(line))
	if refused, is := errors.AsType[*attached.RefusedError](err); is {
		return "error refused " + refused.Reason
	} else if err != nil {
		for is, word := range map[error]string{attached.ErrGone: "gone", attached.ErrFull: "again", attached.ErrShort: "short", attached.ErrAgain: "again"} {
			if errors.Is(err, is) {
				return "error " + word + " none"
			}
		}
		return "error invalid none"
	}
	return answer
}

func (g *goLibrary) end() error { _, err := g.run([]string{"detach"}); return err }

func (g *goLibrary) run(words []string) (answer string, err error) {
	var n [3]int
	for i, w := range words[1:] {
		n[i], _ = strconv.Atoi(w) // 0: a name
	}
	switch words[0] {
	case "attach":
		answer = "attached"
		g.client, err = attached.Attach(attached.Config{Socket: words[1], Name: words[2], Session: uint64(n[2])})
	case "send":
		var s *attached.Sender
		if s, err = g.client.Send(words[1], n[1]); err == nil {
			g.sender, g.ports, answer = s, append(g.ports, s), fmt.Sprint("opened ", s.Next())
		}
	case "receive":
		var r *attached.Receiver
		if r, err = g.client.Receive(words[1], n[1]); err == nil {
			g.receiver, g.ports, answer = r, append(g.ports, r), "opened 0"
		}
	case "claim":
		answer = "claimed " + words[1]
		for f := (attached.Frame{}); err == nil && len(g.frames) < n[0]; {
			if f, err = g.sender.Claim(); err == nil {
				g.frames = append(g.frames, f)
			}
		}
	case "append":
		return g.append(n[0], n[1])
	case "order":
		return g.order(n[0], n[1])
	case "take", "hold":
		return g.take(n[0], time.Duration(n[1])*time.Millisecond, words[0] == "hold")
	case "releaseall":
		answer = fmt.Sprint("released ", len(g.held))
		g.receiver.Release(g.held)
		g.held = nil
	case "close", "detach":
		for _, p := range g.ports {
			err = errors.Join(err, p.Close())
		}
		if g.given != nil && words[0] == "detach" {
			_ = g.given.Close() // the daemon may be gone
		}
		if g.conn != nil && words[0] == "detach" {
			_ = g.conn.Close() // the exchange may have ended it
			g.conn, g.given = nil, nil
		}
		g.writer, g.follower, g.state, g.churned = nil, nil, nil, 0
		if g.ports, g.frames, answer = nil, nil, "closed"; words[0] == "detach" && g.client != nil {
			answer, err = "detached", errors.Join(err, g.client.Close())
		}
	case "blocks":
		if g.blocks, err = g.client.Blocks(words[1], n[1]); err == nil {
			g.ports, answer = append(g.ports, g.blocks), fmt.Sprintf("blocks %d %d", g.blocks.Size(), g.blocks.Longest())
		}
	case "fetch":
		return g.fetch(n[0], n[1])
	case "resume":
		return "resumed", g.resume()
	case "connect", "say", "hear", "give", "check", "takeback":
		return g.runGiven(words[0], words[1:], n[:])
	case "writer", "follow", "put", "tryput", "get", "readers":
		return g.runChannel(words[0], words[1:], n[:])
	default:
		return g.runState(words[0], words[1:], n[:])
	}
	return answer, err
}

// order sends n messages, and counts those of which nobody knows what became.
func (g *goLibrary) order(n, length int) (string, error) {
	done, unknown := 0, 0
	for sent := 0; done+unknown < n; {
		if f, err := g.sender.Claim(); err == nil && sent < n {
			for i := range f.Data[:length] {
				f.Data[i] = byte(uint64(i) + g.sender.Next())
			}
			if err := g.commit(f, length); err != nil {
				return "", err
			}
			sent++
			continue
		} else if err == nil {
			g.sender.Discard(f)
		}
		var got [64]attached.Receipt
		k, _ := g.sender.Poll(got[:]) // Wait says what is wrong
		for _, r := range got[:k] {
			switch {
			case errors.Is(r.Err, wire.NotKnown):
				unknown++
			case r.Err != nil:
				return "", r.Err
			default:
				done++
			}
		}
		if k == 0 {
			if err := g.sender.Wait(g, time.Second); err != nil {
				return "", err
			}
		}
	}
	return fmt.Sprintf("orders %d %d", done, unknown), nil
}

// append sends n messages, first in claimed frames, and waits for all receipts.
func (g *goLibrary) append(n, length int) (string, error) {
	first, done, position := g.sender.Next(), uint64(0), uint64(0)
	for n > 0 || first+done < g.sender.Next() {
		var err error
		if len(g.frames) == 0 && n > 0 {
			_, err = g.run([]string{"claim", "1"})
		}
		if err == nil && n > 0 {
			f := g.frames[0]
			for i := range f.Data[:min(length, len(f.Data))] {
				f.Data[i] = byte(uint64(i) + g.sender.Next())
			}
			if err := g.commit(f, length); err != nil {
				return "", err
			}
			g.frames = g.frames[1:]
			n--
			continue
		}
		var got [64]attached.Receipt
		k, _ := g.sender.Poll(got[:]) // Wait says what is wrong
		for _, r := range got[:k] {
			if r.Err != nil || r.Sequence != first+done {
				return "", fmt.Errorf("receipt of %d, %w", r.Sequence, r.Err)
			}
			done, position = done+1, r.Position
		}
		if k == 0 {
			if err := g.sender.Wait(g, time.Second); err != nil {
				return "", err
			}
		}
	}
	return fmt.Sprintf("done %d %d %d", first, first+done-1, position), nil
}

// commit says of every other message that it answers something, which arrived a millisecond before.
func (g *goLibrary) commit(f attached.Frame, length int) (err error) {
	if g.sender.Next()%2 == 1 {
		_, err = g.sender.Commit(f, length)
	} else {
		_, err = g.sender.CommitAnswer(f, length, uint64(time.Now().Add(-time.Millisecond).UnixNano()))
	}
	return err
}

// collect takes receipts, or waits for one, and returns the last position.
func (g *goLibrary) collect() (position uint64, err error) {
	var got [64]attached.Receipt
	k, _ := g.sender.Poll(got[:]) // Wait says what is wrong
	for _, r := range got[:k] {
		if r.Err != nil {
			return 0, r.Err
		}
		position = r.Position
	}
	if k == 0 {
		err = g.sender.Wait(g, time.Second)
	}
	return position, err
}

// take takes n messages, and releases them unless keep.
func (g *goLibrary) take(n int, limit time.Duration, keep bool) (string, error) {
	took, last, gaps, sum := 0, uint64(0), uint64(0), uint32(0)
	for end := time.Now().Add(limit); took < n && time.Now().Before(end); {
		var got [64]attached.Message
		k, _ := g.receiver.Poll(got[:min(64, n-took)]) // Wait says what is wrong
		for _, m := range got[:k] {
			if last > 0 && m.Position > last+1 {
				gaps += m.Position - last - 1
			}
			last = m.Position
			for _, b := range m.Data {
				sum += uint32(b)
			}
		}
		if took += k; keep {
			g.held = append(g.held, got[:k]...)
		} else {
			g.receiver.Release(got[:k])
		}
		if k == 0 {
			if err := g.receiver.Wait(g, time.Until(end)); err != nil {
				return "", err
			}
		}
	}
	return fmt.Sprintf("took %d %d %d %d", took, last, gaps, sum), nil
}
