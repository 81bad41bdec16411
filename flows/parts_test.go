package flows

import (
	"io"
	"reflect"
	"testing"

	"github.com/unifiedd/unifiedd/flows/member"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/sink/discard"
	"github.com/unifiedd/unifiedd/flows/sink/disk"
	"github.com/unifiedd/unifiedd/flows/sink/feed"
	"github.com/unifiedd/unifiedd/flows/sink/order"
	"github.com/unifiedd/unifiedd/flows/sink/peers"
	program "github.com/unifiedd/unifiedd/flows/sink/program"
	"github.com/unifiedd/unifiedd/flows/sink/state"
	"github.com/unifiedd/unifiedd/flows/source/afxdp"
	"github.com/unifiedd/unifiedd/flows/source/generator"
	"github.com/unifiedd/unifiedd/flows/source/journal"
	"github.com/unifiedd/unifiedd/flows/source/message"
	"github.com/unifiedd/unifiedd/flows/source/packet"
	programs "github.com/unifiedd/unifiedd/flows/source/program"
)

// TestParts: a source or sink that has one method of a part has the whole part: else a pipeline would not find it.
func TestParts(t *testing.T) {
	both := []reflect.Type{reflect.TypeFor[pipeline.Holder](), reflect.TypeFor[pipeline.Checker](), reflect.TypeFor[pipeline.Announcer](), reflect.TypeFor[pipeline.Shrinker]()}
	ofSources := append(both[:len(both):len(both)], reflect.TypeFor[pipeline.Supplier](), reflect.TypeFor[pipeline.Kicker](), reflect.TypeFor[pipeline.Timer](), reflect.TypeFor[pipeline.Leaver](),
		reflect.TypeFor[pipeline.Acknowledger](), reflect.TypeFor[pipeline.Finite](), reflect.TypeFor[pipeline.Accepter](), reflect.TypeFor[pipeline.LossCounter](), reflect.TypeFor[pipeline.ExtentHolder]())
	ofSinks := append(both[:len(both):len(both)], reflect.TypeFor[pipeline.Device](), reflect.TypeFor[pipeline.Storage](), reflect.TypeFor[pipeline.Flusher](), reflect.TypeFor[pipeline.Drainer](),
		reflect.TypeFor[pipeline.Stopper](), reflect.TypeFor[pipeline.Beginner](), reflect.TypeFor[pipeline.FailureCounter](), reflect.TypeFor[io.Closer]())
	found := 0
	check := func(v any, parts []reflect.Type) {
		one := reflect.TypeOf(v)
		for _, part := range parts {
			for i := range part.NumMethod() {
				if _, has := one.MethodByName(part.Method(i).Name); !has {
					continue
				}
				if found++; !one.Implements(part) {
					t.Errorf("%v has a method %s and is no %v", one, part.Method(i).Name, part)
				}
			}
		}
	}
	for _, source := range []pipeline.Source{&afxdp.Source{}, &packet.Source{}, &generator.Source{}, &journal.Source{}, &message.Source{}, &programs.Source{}, &member.Source{}, &member.Witness{}} {
		check(source, ofSources)
	}
	for _, sink := range []pipeline.Sink{&disk.Writer{}, &peers.Sink{}, &order.Sink{}, &program.Sink{}, &state.Sink{}, &discard.Sink{}, &feed.Sink{}, &member.Sink{}} {
		check(sink, ofSinks)
	}
	if found < 100 {
		t.Errorf("only %d methods of parts were found", found)
	}
}
