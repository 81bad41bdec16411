package attach

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// channelSetting has a channel with 64 slots for each policy of a reader.
const channelSetting = `
region: {size: 16MiB, pages: ordinary}
attach:
  socket: SOCKET
  programs: [{name: writer, user: "USER", out: 2MiB}, {name: reader, user: "USER"}]
  channels:
    - {name: all, writer: writer, slots: 64, slot: 128, readers: [{program: reader, policy: wait}]}
    - {name: newest, writer: writer, slots: 64, slot: 128, readers: [{program: reader, policy: drop_oldest}]}
    - {name: strict, writer: writer, slots: 64, slot: 128, readers: [{program: reader, policy: disconnect}]}
flows: [{name: idle, from: {generate: 64, rate: 1}, to: {discard: true}}]
`

// channelCases are cases of channels. A gap is counted exactly: of a ring with 64 slots, a reader goes on with the 48 newest.
var channelCases = []libraryCase{
	{name: "a channel with a reader that is waited for", setting: channelSetting, steps: `attach SOCKET writer 7 = attached;
		@attach SOCKET reader 8 = attached; @follow all = error refused busy; writer all = opened 1; readers = readers 0;
		put 100 112 = put 1 100; @follow all = following; readers = readers 1; put 64 20 = put 101 164; tryput 20 = error again none;
		@get 1 5000 = got 1 101 0; tryput 0 = put 165; tryput 113 = error invalid none; put 20000 100 &; @get 20064 20000 = got 20064 20165 0;
		= put 166 20165; @close = closed; put 100 8 = put 20166 20265; readers = readers 0; detach = detached`},
	{name: "a channel with a writer that waits", setting: channelSetting, steps: `@attach SOCKET writer 7 = attached;
		attach SOCKET reader 8 = attached; follow all = error refused busy; follow nothing = error refused no_such_flow;
		writer all = error refused no_such_flow; @writer all = opened 1; @put 100 112 = put 1 100; follow all = following;
		follow all = following; @put 64 20 = put 101 164; @tryput 20 = error again none; get 1 5000 = got 1 101 0; @tryput 0 = put 165;
		@put 20000 100 &; get 20064 20000 = got 20064 20165 0; @ = put 166 20165; get 1 20 = got 0 0 0`},
	{name: "a slow reader", setting: channelSetting, steps: `@attach SOCKET writer 7 = attached; @writer newest = opened 1;
		attach SOCKET reader 8 = attached; follow newest = following; @put 200 100 = put 1 200; !reader newest 200 0;
		get 48 5000 = got 48 200 152; !reader newest 0 152; @put 63 100 = put 201 263; !reader newest 63 152; get 63 5000 = got 63 263 152; @put 65 100 = put 264 328; get 48 5000 = got 48 328 169;
		get 1 20 = got 0 0 169`},
	{name: "a writer of a slow reader", setting: channelSetting, steps: `attach SOCKET writer 7 = attached; writer newest = opened 1;
		@attach SOCKET reader 8 = attached; @follow newest = following; put 200 100 = put 1 200; !reader newest 200 0; @get 48 5000 = got 48 200 152;
		!reader newest 0 152; put 65 100 = put 201 265; @get 48 5000 = got 48 265 169`},
	{name: "a reader that is too slow", setting: channelSetting, steps: `@attach SOCKET writer 7 = attached; @writer strict = opened 1;
		attach SOCKET reader 8 = attached; follow strict = following; @put 200 100 = put 1 200; !closed strict;
		get 49 5000 = error (closed|refused) too_slow; @put 10 100 = put 201 210; resume = resumed; @put 10 100 = put 211 220;
		get 10 5000 = got 10 220 162`},
	{name: "daemon restarted with a writer", setting: channelSetting, steps: `attach SOCKET writer 7 = attached; writer all = opened 1;
		@attach SOCKET reader 8 = attached; @follow all = following; put 40 20 = put 1 40; @get 30 5000 = got 30 30 0; !kill; !run;
		resume = resumed; put 20 20 = put 41 60; @get 10 5000 = got 10 40 0; @resume = resumed; put 30 20 = put 61 90;
		@get 30 5000 = got 30 90 20`},
	{name: "daemon restarted with a reader", setting: channelSetting, steps: `@attach SOCKET writer 7 = attached; @writer all = opened 1;
		attach SOCKET reader 8 = attached; follow all = following; @put 40 20 = put 1 40; get 30 5000 = got 30 30 0; !kill; !run;
		@resume = resumed; @put 20 20 = put 41 60; get 10 5000 = got 10 40 0; resume = resumed; @put 30 20 = put 61 90;
		get 30 5000 = got 30 90 20`},
	{name: "writer restarted", setting: channelSetting, steps: `attach SOCKET writer 7 = attached; writer all = opened 1;
		@attach SOCKET reader 8 = attached; @follow all = following; put 40 20 = put 1 40; detach = detached;
		attach SOCKET writer 7 = attached; writer all = opened 41; @get 40 5000 = got 40 40 0; @resume = resumed;
		put 5 20 = put 41 45; @get 5 5000 = got 5 45 0`},
	{name: "writer of a reader restarted", setting: channelSetting, steps: `@attach SOCKET writer 7 = attached; @writer all = opened 1;
		attach SOCKET reader 8 = attached; follow all = following; @put 40 20 = put 1 40; @detach = detached;
		@attach SOCKET writer 7 = attached; @writer all = opened 41; get 40 5000 = got 40 40 0; resume = resumed; @put 5 20 = put 41 45; get 5 5000 = got 5 45 0`},
	{name: "daemon and writer restarted", setting: channelSetting, steps: `@attach SOCKET writer 7 = attached; @writer newest = opened 1;
		attach SOCKET reader 8 = attached; follow newest = following; @put 40 20 = put 1 40; get 40 5000 = got 40 40 0; @detach = detached;
		!kill; !run; @attach SOCKET writer 7 = attached; @writer newest = opened 1; @put 6 20 = put 1 6; resume = resumed;
		@put 5 20 = put 7 11; get 5 5000 = got 5 11 6`},
}

// TestLibraryRemoteChannel: a writer with the library for C puts the checksums that another machine checks, and a reader with
// it checks them, because slots come there in no promised order. The next process of the writer goes on in the same ring.
func TestLibraryRemoteChannel(t *testing.T) {
	testenv.Long(t, "TestLibrary has channels, and TestRemoteChannel goes to another machine")
	checked := buildChecked(t)
	for _, writes := range []bool{true, false} {
		t.Run(map[bool]string{true: "writer", false: "reader"}[writes], func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(2*time.Minute))
			defer cancel()
			testenv.Leaks(t)
			m := newMachines(t, "wait", "wait", 64)
			var writer, reader programLibrary = startDriver(ctx, t, daemon.Here{}, checked), &goLibrary{Context: ctx}
			if !writes {
				writer, reader = reader, writer
			}
			expect := func(l programLibrary, say, want string) {
				t.Helper()
				got := l.do(say)
				for ; ctx.Err() == nil && (retries(say, got, want) || say == "readers" && got != want); got = l.do(say) {
					time.Sleep(time.Millisecond)
				}
				if got != want {
					t.Fatalf("%s: %q instead of %q: %v\n%s\n%s", say, got, want, errors.Join(writer.end(), reader.end()), m.daemons[0].Log, m.daemons[1].Log)
				}
			}
			expect(writer, "attach "+m.socket(0)+" writer 7", "attached")
			expect(writer, "writer book", "opened 1")
			expect(reader, "attach "+m.socket(1)+" reader 8", "attached")
			expect(reader, "follow book", "following")
			for first := 1; first < 20000; first += 10000 {
				last := first + 9999
				expect(writer, "readers", "readers 1") // the peer: the writer does not wait for it before
				put := make(chan string, 1)
				go func() { put <- writer.do("put 10000 110") }()
				expect(reader, "get 10000 60000", fmt.Sprintf("got 10000 %d 0", last))
				if got := <-put; got != fmt.Sprintf("put %d %d", first, last) {
					t.Fatalf("the writer has %q", got)
				}
				expect(writer, "detach", "detached")
				expect(writer, "attach "+m.socket(0)+" writer 7", "attached")
				expect(writer, "writer book", fmt.Sprintf("opened %d", last+1))
			}
			if err := errors.Join(writer.end(), reader.end()); err != nil {
				t.Error(err)
			}
		})
	}
}

// runChannel runs a command for a channel.
func (g *goLibrary) runChannel(what string, names []string, n []int) (answer string, err error) {
	switch what {
	case "writer":
		if g.writer, err = g.client.WriteChannel(names[0]); err == nil {
			g.ports, answer = append(g.ports, g.writer), fmt.Sprint("opened ", g.writer.Next())
		}
	case "follow":
		if g.follower != nil {
			_ = g.follower.Close() // as the other library does
		}
		if g.follower, err = g.client.ReadChannel(names[0]); err == nil {
			g.ports, answer = append(g.ports, g.follower), "following"
		}
	case "readers":
		answer = fmt.Sprint("readers ", g.writer.Readers())
	case "put":
		first := g.writer.Next()
		for i := 0; err == nil && i < n[0]; i++ {
			_, err = g.writer.WriteWait(g, patterned(g.writer.Next(), n[1]))
		}
		answer = fmt.Sprintf("put %d %d", first, g.writer.Next()-1)
	case "tryput":
		var sequence uint64
		sequence, err = g.writer.Write(patterned(g.writer.Next(), n[0]))
		answer = fmt.Sprint("put ", sequence)
	case "get":
		return g.get(n[0], time.Duration(n[1])*time.Millisecond)
	}
	return answer, err
}

// resume opens the channel or state that was opened last again.
func (g *goLibrary) resume() error {
	switch {
	case g.follower != nil:
		return g.follower.Resume(g)
	case g.writer != nil:
		return g.writer.Resume(g)
	}
	return g.state.Resume(g)
}

// patterned returns the message with a sequence.
func patterned(sequence uint64, length int) []byte {
	b := make([]byte, length)
	for i := range b {
		b[i] = byte(uint64(i) + sequence)
	}
	return b
}

// get reads n messages of a channel.
func (g *goLibrary) get(n int, limit time.Duration) (string, error) {
	got, last, buffer := 0, uint64(0), make([]byte, g.follower.Longest())
	ctx, cancel := context.WithTimeout(g, limit)
	defer cancel()
	for got < n && ctx.Err() == nil {
		length, sequence, ok, _ := g.follower.Read(buffer) // Wait says what is wrong
		if !ok {
			if err := g.follower.Wait(ctx, time.Second); err != nil && ctx.Err() == nil {
				return "", err
			}
			continue
		}
		for i, b := range buffer[:length] {
			if b != byte(uint64(i)+sequence) {
				return "", fmt.Errorf("message %d is damaged at byte %d", sequence, i)
			}
		}
		got, last = got+1, sequence
	}
	return fmt.Sprintf("got %d %d %d", got, last, g.follower.Lost()), nil
}
