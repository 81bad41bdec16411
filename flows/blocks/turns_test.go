package blocks

import (
	"fmt"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestTurns: if the disk completes many reads together, a round answers a few of them, and later
// rounds answer the others.
func TestTurns(t *testing.T) {
	const requests = 8
	region, c := small()
	g := newRig(t, region)
	v := g.far.serve(newDisk(t, diskSize), c)
	u := g.near.newCustomer(v, ClientConfig{}, requests, 0)
	holding, asked, result := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		result <- v.do(func() error {
			close(holding)
			<-asked
			return v.server.answerAll(requests)
		})
	}()
	<-holding
	for i, f := range u.frames {
		f.Len = 4096
		u.submit(Read{Offset: uint64(i) * 3 * 4096, Frame: f})
	}
	_, err := u.Poll(nil)
	testenv.Must(t, err)
	close(asked)
	testenv.Must(t, <-result)
	for _, d := range u.await(requests) {
		u.verify(d)
	}
}

// answerAll polls until the given number of requests is answered. It polls slowly, so that the disk
// completes all reads in between.
func (s *Server) answerAll(requests int) error {
	for was, end := 0, time.Now().Add(waitLimit); was < requests; time.Sleep(5 * time.Millisecond) {
		if _, err := s.Poll(time.Now()); err != nil {
			return err
		}
		is := s.answers()
		if more := is - was; more > turnBytes/4096 {
			return fmt.Errorf("one round answered %d requests of 4 KiB", more)
		}
		if was = is; time.Now().After(end) {
			return fmt.Errorf("%d of %d requests are answered", was, requests)
		}
	}
	return nil
}

// answers returns the number of answered requests, including those whose answers may not have
// arrived yet.
func (s *Server) answers() int {
	n := int(s.count.served.Load())
	for i := range s.operations {
		if s.operations[i].state == opAnswered {
			n++
		}
	}
	return n
}
