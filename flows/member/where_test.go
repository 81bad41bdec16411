package member

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/cluster"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/replica"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// three is a group of which one member has addresses, and two are named.
func three() *config.Replicas {
	return &config.Replicas{Name: "orders", Self: "a", Listen: ":7491", Members: []config.Replica{
		{Name: "a", Peer: "host-a/orders"}, {Name: "b", Address: "10.0.0.2:7491", Clients: "10.0.0.2:7471", Certificate: "b.example"}, {Name: "w", Peer: "host-w/votes", Witness: true}, {Name: "d", Peer: "host-d/orders"},
	}}
}

// static says where the named members are.
func static(n *cluster.Names, d string) {
	n.SetStatic([]cluster.Static{{Peer: "host-w/votes", Group: "10.0.0.3:7491"}, {Peer: "host-d/orders", Address: d + ":7471", Group: d + ":7491"}}, true)
}

// TestWhereabouts: members are where the configuration or the resolver says, and the driver is told when one moves, or
// when other members are configured.
func TestWhereabouts(t *testing.T) {
	names := new(cluster.Names)
	w := &whereabouts{names: names}
	testenv.Must(t, w.use(three()))
	if all, _ := w.peers(); len(all) != 4 || all[3].Addresses != nil || !strings.Contains(all[3].Lacks, "registry does not answer") || all[3].Host != "host-d" {
		t.Errorf("before they are found: %+v", all)
	}
	static(names, "10.0.0.4")
	told := make(chan []replica.Peer, 10)
	ctx, end := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.follow(ctx, func(all []replica.Peer) error { told <- all; return nil })
	}()
	next := func(what string) []replica.Peer {
		t.Helper()
		select {
		case all := <-told:
			return all
		case <-time.After(10 * time.Second):
			t.Fatalf("the driver is not told: %s", what)
			return nil
		}
	}
	all := next("at first")
	for i, want := range []struct {
		address, records, certificate, host string
		witness                             bool
	}{{certificate: "host-a"}, {"10.0.0.2:7491", "10.0.0.2:7471", "b.example", "", false}, {"10.0.0.3:7491", "", "host-w", "host-w", true}, {"10.0.0.4:7491", "10.0.0.4:7471", "host-d", "host-d", false}} {
		one := all[i]
		if strings.Join(one.Addresses, ",") != want.address || strings.Join(one.Records, ",") != want.records || one.Name != want.certificate || one.Host != want.host || one.Witness != want.witness {
			t.Errorf("member %d is %+v, want %+v", i, one, want)
		}
	}
	if at := w.clients(4); at != "10.0.0.4:7471" || w.clients(3) != "" || w.clients(9) != "" {
		t.Errorf("clients of d are sent to %q", at)
	}
	static(names, "10.0.0.9")
	if all = next("of a move"); !slices.Equal(all[3].Addresses, []string{"10.0.0.9:7491"}) || !slices.Equal(all[3].Records, []string{"10.0.0.9:7471"}) {
		t.Errorf("moved: %+v", all[3])
	}
	fewer := three()
	fewer.Members = fewer.Members[:3]
	if err := w.use(fewer); err != nil || len(next("of other members")) != 3 {
		t.Errorf("fewer members: %v", err)
	}
	if used, _ := names.Wanted(); slices.Contains(used, "host-d") {
		t.Errorf("%q are still in use", used)
	}
	end()
	<-done
	testenv.Check(t, w.Close())
}

// TestWhereaboutsRefused: what cannot be found changes nothing.
func TestWhereaboutsRefused(t *testing.T) {
	w := new(whereabouts)
	if err := w.use(three()); err == nil || !strings.Contains(err.Error(), "add cluster.resolver") {
		t.Errorf("without a resolver: %v", err)
	}
	w.names = new(cluster.Names)
	bad := three()
	bad.Members[3].Peer = "host-d"
	if err := w.use(bad); err == nil || !strings.Contains(err.Error(), "names no flow") {
		t.Errorf("a name without a flow: %v", err)
	}
	if used, _ := w.names.Wanted(); len(used) > 0 || w.places != nil {
		t.Errorf("%q are in use", used)
	}
}
