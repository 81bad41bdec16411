package attached_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/attached"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// hot attaches a program of the tests.
func hot(t *testing.T, name string) (k *attached.Client) {
	t.Helper()
	testenv.Wait(t, testenv.Within(5*time.Second), "the last test's "+name+" to have left", func() (ok bool) {
		var err error
		k, err = attached.Attach(attached.Config{Socket: socket, Name: name})
		return err == nil
	})
	t.Cleanup(func() { testenv.Check(t, k.Close()) })
	return k
}

// soon calls step until it has done all. Nothing in between allocates.
func soon(t *testing.T, step func() (all bool)) {
	for n := 0; !step(); n++ {
		if n == 400000 {
			t.Fatal("it goes on for ever")
		}
		time.Sleep(20 * time.Microsecond)
	}
}

const hotMessages = 64 // of one run

// TestHotPathSender: a message that is sent, and its receipt, cost no allocation.
func TestHotPathSender(t *testing.T) {
	s, err := hot(t, "hot").Send("hot-out", 0)
	testenv.Must(t, err)
	defer s.Close()
	var receipts [hotMessages]attached.Receipt
	done := 0
	if n := testenv.AllocsPerRun(t, 100, func() {
		for range hotMessages {
			f, err := s.Claim()
			testenv.Must(t, err)
			binary.NativeEndian.PutUint64(f.Data, s.Next())
			if _, err := s.Commit(f, 64); err != nil {
				t.Fatal(err)
			}
		}
		soon(t, func() bool {
			n, err := s.Poll(receipts[:])
			testenv.Must(t, err)
			done += n
			return s.Unfinished() == 0
		})
	}); n != 0 {
		t.Errorf("%d messages allocate %v times", hotMessages, n)
	}
	if done != 101*hotMessages { // one run more is to warm up
		t.Errorf("%d messages are done", done)
	}
}

// TestHotPathReceiver: a message that is received and released costs no allocation.
func TestHotPathReceiver(t *testing.T) {
	r, err := hot(t, "hot").Receive("hot-in", 0)
	testenv.Must(t, err)
	defer r.Close()
	var got [hotMessages]attached.Message
	if n := testenv.AllocsPerRun(t, 100, func() {
		taken := 0
		soon(t, func() bool {
			n, err := r.Poll(got[:])
			testenv.Must(t, err)
			r.Release(got[:n])
			taken += n
			return taken >= hotMessages
		})
	}); n != 0 {
		t.Errorf("%d messages allocate %v times", hotMessages, n)
	}
}

// TestHotPathChannel: a message of a channel costs neither its writer nor its reader an allocation.
func TestHotPathChannel(t *testing.T) {
	w, err := hot(t, "hot").WriteChannel("hot")
	testenv.Must(t, err)
	defer w.Close()
	k := hot(t, "cool")
	r, err := k.ReadChannel("hot")
	testenv.Must(t, err)
	defer r.Close()
	var message [64]byte
	buffer := make([]byte, r.Longest())
	if n := testenv.AllocsPerRun(t, 100, func() {
		for range hotMessages {
			written, err := w.Write(message[:])
			testenv.Must(t, err)
			_, read, ok, err := r.Read(buffer)
			if !ok || err != nil || read != written {
				t.Fatalf("message %d after %d was written: %v, %v", read, written, ok, err)
			}
		}
		if _, _, ok, err := r.Read(buffer); ok || err != nil {
			t.Fatalf("one more message: %v", err)
		}
	}); n != 0 {
		t.Errorf("%d messages allocate %v times", hotMessages, n)
	}
}
