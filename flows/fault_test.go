package flows

import (
	"errors"
	"testing"

	"github.com/unifiedd/unifiedd/flows/source/packet"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/xdp"
)

// TestInterfaceDown: a flow waits for an interface that goes down, and goes on when it is up.
func TestInterfaceDown(t *testing.T) { engines(t, interfaceDown) }

func interfaceDown(t *testing.T, from string) {
	c := newClinic(t, from, toFile)
	c.start(t)
	c.capture(t, 100)
	c.B.SetDown(t)
	if s := c.becomes(t, status.Waiting, c.B.Ifname, "down", "ip link set "+c.B.Ifname+" up"); s.Cause != status.InterfaceDown {
		t.Errorf("the cause is %q", s.Cause)
	}
	if not := c.daemon.Unready(); len(not) != 1 || not[0].Name != "ill" || not[0].State != status.Waiting {
		t.Errorf("not ready: %+v", not)
	}
	c.B.SetUp(t)
	if s := c.becomes(t, status.Running); s.Cause != "" {
		t.Errorf("the cause is still %q", s.Cause)
	}
	c.capture(t, 100)
	testenv.Check(t, c.ill.Stop())
	inSequence(t, c.illFiles(t), 0, 200)
}

// TestInterfaceRemoved: a flow fails when its interface is removed, and keeps what had come before.
func TestInterfaceRemoved(t *testing.T) { engines(t, interfaceRemoved) }

func interfaceRemoved(t *testing.T, from string) {
	gone := xdp.ErrInterfaceGone
	if from == packetSocket {
		gone = packet.ErrInterfaceGone
	}
	c := newClinic(t, from, toFile)
	c.start(t)
	c.capture(t, 100)
	c.A.Delete(t)
	s := c.becomes(t, status.Failed, c.B.Ifname, gone.Error())
	if s.Durable.Packets != 100 || s.Dropped["write_failed"] != 0 || s.Cause != status.InterfaceGone {
		t.Errorf("what had come before is not kept, or the cause is another: %+v", s)
	}
	inSequence(t, c.illFiles(t), 0, 100)
	err := c.try(t)
	if err == nil || from == "" && !errors.Is(err, gone) {
		t.Fatalf("start it again: %v", err)
	}
	testenv.MessageNames(t, err.Error(), []string{"start flow ill", c.B.Ifname, "ip link"})
}

// TestInterfaceRenamed: a flow goes on when its interface has another name.
func TestInterfaceRenamed(t *testing.T) { engines(t, interfaceRenamed) }

func interfaceRenamed(t *testing.T, from string) {
	c := newClinic(t, from, toFile)
	c.start(t)
	c.capture(t, 100)
	c.B.SetDown(t)
	c.B.Rename(t, "newname0")
	c.B.SetUp(t)
	await(t, c.ill, "the new name", func(s status.Flow) bool { return s.State == status.Running && s.From == "newname0" })
	c.capture(t, 100)
	testenv.Check(t, c.ill.Stop())
	inSequence(t, c.illFiles(t), 0, 200)
}

func TestInterfaceMoved(t *testing.T) {
	c := newClinic(t, "", toFile)
	c.start(t)
	c.capture(t, 100)
	away := testenv.NewNamespace(t)
	c.B.Run(t, "ip", "link", "set", c.B.Ifname, "netns", away.Name)
	s := c.becomes(t, status.Failed, c.B.Ifname, xdp.ErrInterfaceGone.Error())
	if s.Durable.Packets != 100 {
		t.Errorf("what had come before is not kept: %+v", s)
	}
	free(t, away, c.B.Ifname)
	inSequence(t, c.illFiles(t), 0, 100)
}

func TestProgramDetached(t *testing.T) {
	c := newClinic(t, "", toFile)
	c.start(t)
	c.capture(t, 100)
	testenv.DetachProgram(t, attached(t, c.B.Namespace, c.B.Ifname))
	c.becomes(t, status.Failed, c.B.Ifname, xdp.ErrProgramGone.Error(), "open the interface again")
	inSequence(t, c.illFiles(t), 0, 100)
	free(t, c.B.Namespace, c.B.Ifname)
	c.start(t)
	c.becomes(t, status.Running)
	c.capture(t, 100)
	testenv.Check(t, c.ill.Stop())
	inSequence(t, c.illFiles(t), 0, 200)
}
