package feed

import (
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/golden"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestGolden: feeds that a generator has made from the published format (testdata/make_feeds.py) give the same messages
// and counters as before.
func TestGolden(t *testing.T) {
	for name, counter := range map[string]*Counter{"moldudp64": nil, "counter": {Offset: 4, Width: 4, Little: true}} {
		t.Run(name, func(t *testing.T) {
			a, err := New(Config{Lines: 2, Held: 64, Longest: 1472, Gap: 10 * time.Millisecond, Counter: counter})
			testenv.Must(t, err)
			text, err := os.ReadFile("testdata/" + name + ".feed")
			testenv.Must(t, err)
			var out strings.Builder
			take := func() {
				for m, ok := a.Next(); ok; m, ok = a.Next() {
					fmt.Fprintf(&out, "%q\n", m)
				}
			}
			now := time.Duration(0)
			pass := func(span time.Duration) {
				for end := now + span; now < end; now += time.Millisecond {
					a.Tick(now)
					take()
				}
			}
			for line := range strings.Lines(string(text)) {
				word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
				if word == "pause" {
					span, err := time.ParseDuration(rest)
					testenv.Must(t, err)
					pass(span)
					continue
				}
				packet, err := hex.DecodeString(rest)
				testenv.Must(t, err)
				a.Receive(int(word[0]-'a'), packet)
				take()
			}
			a.Finish()
			take()
			s := a.Stats()
			fmt.Fprintf(&out, "%d messages, %d lost in %d gaps, session %s of %d, %d ends\n", s.Given, s.Lost, s.Gaps, s.Session, s.Sessions, s.Ends)
			for i, l := range s.Lines {
				fmt.Fprintf(&out, "line %c: %d won, %d duplicates, %d missing, %d late, refused %v\n", 'a'+i, l.Wins, l.Duplicates, l.Missing, l.Late, l.Refused)
			}
			golden.Compare(t, "testdata/"+name+".txt", out.String())
		})
	}
}
