//go:build lab

package main

import (
	"testing"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/rdma"
)

func TestLinkDown(t *testing.T) {
	if testing.Short() {
		t.Skip("not in the short form, where TestSilence of rdma/verbs has the card go down; make lab has it")
	}
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
	if testing.Short() {
		t.Skip("not in the short form, where TestServerGoesOn has a client that dies; make lab has it")
	}
	peerKilled(t, newPlace(t))
}

func TestPeerStopped(t *testing.T) {
	if testing.Short() {
		t.Skip("not in the short form, where TestServerGoesOn has a peer that dies; make lab has it")
	}
	peerStopped(t, newPlace(t), map[string]string{ // the kernel acknowledges for the stopped process
		"-test latency -op send":            "check that the peer is alive",
		"-test latency -op write":           "check that the peer is alive",
		"-test bandwidth -op send -size 64": "check that the peer is alive", // Soft-RoCE waits for a receive without a limit
	})
}
