package main

import (
	"testing"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
)

func TestLinkDown(t *testing.T) {
	labenv.Guest(t)
	testenv.Long(t, "TestSilence of rdma/verbs sets the card down; make lab runs it")
	p := newPlace(t)
	linkDown(t, p, func(up bool) { labenv.SetLink(t, p.card, up) }, downStatus(t))
}

// downStatus returns the status with which Soft-RoCE completes a request while its card is down.
func downStatus(t *testing.T) rdma.Status {
	if labenv.Kernel(t) == labenv.Linux61 {
		return rdma.LocalQPOperation
	}
	return rdma.WorkFlushed
}

func TestPeerKilled(t *testing.T) {
	labenv.Guest(t)
	testenv.Long(t, "in TestServerGoesOn a client dies; make lab runs it")
	peerKilled(t, newPlace(t))
}

func TestPeerStopped(t *testing.T) {
	labenv.Guest(t)
	testenv.Long(t, "in TestServerGoesOn a peer dies; make lab runs it")
	peerStopped(t, newPlace(t), map[string]string{ // the kernel acknowledges for the stopped process
		"-test latency -op send":            "check that the peer is alive",
		"-test latency -op write":           "check that the peer is alive",
		"-test bandwidth -op send -size 64": "check that the peer is alive", // Soft-RoCE waits for a receive without a limit
	})
}
