package main

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/unifiedd/unifiedd/internal/multicast"
	"github.com/unifiedd/unifiedd/selftests/harness"
)

// noQuerier is what the step says then.
const noQuerier = "no querier is heard: a switch with snooping forgets members of multicast groups, and passes nothing on to them"

// queryWait bounds the time in which a querier is to ask for members. It asks within a second after one has left.
const queryWait = 2 * time.Second

// findQuerier says who asks for members of multicast groups, of IPv4 and IPv6. The host joins a group for that, and
// leaves it again. None is needed where no switch has snooping, so the step cannot fail.
func (t *tester) findQuerier() (string, error) {
	var heard [2]multicast.Querier
	var errs [2]error
	var listening sync.WaitGroup
	for i := range heard {
		listening.Go(func() { heard[i], errs[i] = multicast.Listen(t.session.options.iface, i == 1, queryWait) })
	}
	listening.Wait()
	var found, why []string
	for i, q := range heard {
		switch {
		case errs[i] == nil:
			found = append(found, fmt.Sprintf("%s asks for members by %s", q.Address, q.Protocol))
		case !errors.Is(errs[i], multicast.ErrNoQuerier):
			why = append(why, errs[i].Error())
		}
	}
	if len(found) == 0 {
		return strings.Join(append([]string{noQuerier}, why...), "; "), harness.ErrSkip
	}
	return strings.Join(append(found, why...), "; "), nil
}
