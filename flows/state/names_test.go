package state

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/flows/client"
	"github.com/unifiedd/unifiedd/flows/cluster"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// The test program is the reader of TestNames, too: a State that is named dials from threads of its own, which are not in
// the namespace of a test's thread.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "reader" {
		if err := follow(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// follow reads words of the state desk/turns. Each line of its input is a command, and is answered with a line: at ADDRESS
// says where the state is, open opens it, add adds 1 to a word and prints what it was, and connections prints how many
// there were.
func follow(device string) (err error) {
	names, s := new(cluster.Names), (*client.State)(nil)
	k, err := client.Open(client.Config{Device: device, Pages: umem.Ordinary, Memory: 16 << 20, Queue: 256, Names: names})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		switch what, address, _ := strings.Cut(in.Text(), " "); what {
		case "at":
			names.SetStatic([]cluster.Static{{Peer: "desk/turns", State: address}}, true)
			fmt.Println("ok")
		case "open":
			if s, err = k.State(context.Background(), client.StateConfig{Peer: "desk/turns"}); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, s.Close()) }()
			fmt.Println("ok")
		case "connections":
			fmt.Println(s.Connections())
		case "add":
			before, err := s.FetchAdd(1, 1)
			switch {
			case errors.Is(err, client.ErrDisconnected):
				fmt.Println("disconnected")
			case err != nil:
				return err
			default:
				fmt.Println("was", before)
			}
		}
	}
	return in.Err()
}

// asked is a program that follows a state.
type asked struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Reader
}

// ask gives it a command, and returns the answer.
func (a *asked) ask(command string) string {
	a.t.Helper()
	if _, err := fmt.Fprintln(a.in, command); err != nil {
		a.t.Fatal(err)
	}
	line, err := a.out.ReadString('\n')
	if err != nil {
		a.t.Fatalf("%s: %q, %v", command, line, err)
	}
	return strings.TrimSpace(line)
}

func (a *asked) want(command, answer string) {
	a.t.Helper()
	if got := a.ask(command); got != answer {
		a.t.Fatalf("%s: %q instead of %q", command, got, answer)
	}
}

// serveAgain lets peers read the rig's first state at an address, too.
func (g *rig) serveAgain(listen string) (s *Server) {
	g.t.Helper()
	g.B.Do(g.t, func() {
		var err error
		s, err = Serve(ServerConfig{State: g.set.All()[0], Endpoint: g.at, Listen: listen, Clients: 2, Log: slog.Default()})
		g.must(err)
		g.close(s.Close)
	})
	return s
}

// TestNames: a reader that names a state follows it to another address, while the old connection works and when it does
// not, and when the state is back at the same one. Each time one call says so, also if nobody has read meanwhile.
func TestNames(t *testing.T) {
	g := newRig(t, 2, nil, Config{Name: "turns", Words: 4})
	g.must(g.near.Close()) // its device is that of the program
	c := g.A.Command(os.Args[0], "reader", "roce:"+g.A.Ifname)
	in, err := c.StdinPipe()
	g.must(err)
	out, err := c.StdoutPipe()
	g.must(err)
	c.Stderr = os.Stderr
	g.must(c.Start())
	defer func() {
		_ = in.Close()
		testenv.Check(t, c.Wait())
	}()
	a := &asked{t, in, bufio.NewReader(out)}
	at := func(s *Server) { t.Helper(); a.want("at "+s.Addr().String(), "ok") }
	reads := func(s *Server) {
		t.Helper()
		g.until("the reader to be connected", func() bool { return s.Stats().Readers == 1 })
	}
	says := func(then string) { // one call or more says that the connection has ended
		t.Helper()
		a.want("add", "disconnected")
		g.until("the reader to count", func() bool { return a.ask("add") == then })
	}
	first := g.servers[0]
	at(first)
	a.want("open", "ok")
	a.want("add", "was 0")
	a.want("add", "was 1")

	second := g.serveAgain(g.B.IP.String() + ":0") // the first one still answers
	at(second)
	reads(second)
	g.until("the reader to leave", func() bool { return first.Stats().Readers == 0 })
	says("was 2")

	g.must(second.Close()) // the reader knows of no other one
	g.until("the reader to know", func() bool { return a.ask("add") == "disconnected" })
	third := g.serveAgain(g.B.IP.String() + ":0")
	at(third)
	reads(third)
	g.until("the reader to count", func() bool { return a.ask("add") == "was 3" })

	_, port, err := net.SplitHostPort(third.Addr().String())
	g.must(err)
	g.must(third.Close())
	fourth := g.serveAgain(net.JoinHostPort(g.B.IP.String(), port))
	reads(fourth) // nobody has read meanwhile
	says("was 4")
	a.want("connections", "4")
}
