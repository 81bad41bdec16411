package attach

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/unifiedd/unifiedd/flows/attached"
)

// stateSetting has a state of objects and one of keys. Objects are longer than a packet.
const stateSetting = `
region: {size: 32MiB, pages: ordinary}
workers: [{name: main}]
attach:
  socket: SOCKET
  programs: [{name: writer, user: "USER", out: 4MiB}, {name: reader, user: "USER"}]
  states:
    - {name: book, objects: 64, room: 1600, readers: [reader, writer]}
    - {name: refs, keys: 1000, readers: [reader]}
flows:
  - {name: books, from: {attach: writer, message: 2KiB}, to: {state: book}}
  - {name: keys, from: {attach: writer, message: 2KiB}, to: {state: refs}}
`

// stateCases are cases of states.
var stateCases = []libraryCase{
	{name: "objects read", setting: stateSetting, steps: `@attach SOCKET writer 7 = attached; @send books 0 = opened 1;
		attach SOCKET reader 8 = attached; state nothing = error refused no_such_flow; state book = state 64 1600;
		position = position 0 other; getobject 3 1600 = no object 0; @putobject 3 1600 = updated 1; getobject 3 1600 = object 1600 2 107200;
		position = position 1 same; getobject 3 1599 = error short none; @putobject 3 0 = updated 2; getobject 3 0 = object 0 4 0;
		@putobject 63 9 = updated 3; getobject 63 100 = object 9 2 648; getobject 64 100 = error invalid none;
		getkey k 100 = error invalid none; @deleteobject 63 = updated 4; getobject 63 100 = no object 4; position = position 4 same;
		@putobject 64 9 = updated 5; @putobject 3 1601 = updated 6; @deleteobject 63 = updated 7; getobject 63 100 = no object 4;
		getobject 3 10 = object 0 4 0; detach = detached`},
	{name: "objects written", setting: stateSetting, steps: `attach SOCKET writer 7 = attached; send books 0 = opened 1;
		state refs = error refused no_such_flow; state book = state 64 1600; putobject 3 1600 = updated 1;
		getobject 3 1600 = object 1600 2 107200; putobject 3 3000 = error invalid none; deleteobject 3 = updated 2;
		getobject 3 1600 = no object 4; putkey a b = updated 3; putobject 70 9 = updated 4; putobject 4 1601 = updated 5;
		@attach SOCKET reader 8 = attached; @state book = state 64 1600; @position = position 5 other; @getobject 4 9 = no object 0;
		putobject 4 9 = updated 6; @getobject 4 9 = object 9 2 117`},
	{name: "keys", setting: stateSetting, steps: `@attach SOCKET writer 7 = attached; @send keys 0 = opened 1;
		attach SOCKET reader 8 = attached; state refs = state 0 119; getkey k 100 = no key; @putkey k v = updated 1; getkey k 100 = key v;
		getkey k 0 = error short none; @putkey k longer = updated 2; getkey k 6 = key longer; getkey k 5 = error short none;
		getobject 0 10 = error invalid none; @deletekey k = updated 3; getkey k 100 = no key; @deletekey k = updated 4;
		@putobject 1 9 = updated 5; position = position 5 other`},
	{name: "keys written", setting: stateSetting, steps: `attach SOCKET writer 7 = attached; send keys 0 = opened 1;
		@attach SOCKET reader 8 = attached; @state refs = state 0 119; putkey k v = updated 1; @getkey k 100 = key v;
		deletekey k = updated 2; @getkey k 100 = no key; churn 1000 keys = churned 1000; @verify 1000 keys = sound 1000;
		putkey more v = updated 1003; @getkey more 100 = no key; @getkey k0999 100 = key (k0999){10}`},
	{name: "objects read at full rate", setting: stateSetting, steps: `@attach SOCKET writer 7 = attached; @send books 0 = opened 1;
		attach SOCKET reader 8 = attached; state book = state 64 1600; @churn 16 = churned 16; @churn 60000 &; verify 200000 = sound 200000;
		@ = churned 60000; verify 1000 = sound 1000; position = position 60016 other`},
	{name: "objects written at full rate", setting: stateSetting, steps: `attach SOCKET writer 7 = attached; send books 0 = opened 1;
		@attach SOCKET reader 8 = attached; @state book = state 64 1600; churn 16 = churned 16; churn 60000 &; @verify 200000 = sound 200000;
		= churned 60000`},
	{name: "keys read at full rate", setting: stateSetting, steps: `@attach SOCKET writer 7 = attached; @send keys 0 = opened 1;
		attach SOCKET reader 8 = attached; state refs = state 0 119; @churn 1000 keys = churned 1000; @churn 60000 keys &;
		verify 200000 keys = sound 200000; @ = churned 60000`},
	{name: "keys written at full rate", setting: stateSetting, steps: `attach SOCKET writer 7 = attached; send keys 0 = opened 1;
		@attach SOCKET reader 8 = attached; @state refs = state 0 119; churn 1000 keys = churned 1000; churn 60000 keys &;
		@verify 200000 keys = sound 200000; = churned 60000`},
	{name: "daemon restarted with a state", setting: stateSetting, steps: `attach SOCKET writer 7 = attached; send books 0 = opened 1;
		state book = state 64 1600; putobject 5 1000 = updated 1; position = position 1 other; !kill; getobject 5 1000 = error gone none;
		position = error gone none; !run; resume = resumed; position = position 0 other; getobject 5 1000 = no object 0;
		send books 0 = opened 1;
		putobject 5 10 = updated 1; getobject 5 10 = object 10 2 150; position = position 1 same`},
}

// What churn writes: objects of words, and keys whose values repeat them. libunifiedd/testdata/driver_state.c has the same.
const (
	churnObjects = 16
	churnWords   = 64
	churnKeys    = 1000
	churnRepeats = 10
)

// runState runs a command for a state.
func (g *goLibrary) runState(what string, names []string, n []int) (answer string, err error) {
	keys := len(names) > 1 && names[1] == "keys"
	switch what {
	case "state":
		if g.state, err = g.client.State(names[0]); err == nil {
			g.ports, answer = append(g.ports, g.state), fmt.Sprintf("state %d %d", g.state.Objects(), g.state.Room())
		}
	case "putobject":
		payload := bytes.Repeat([]byte{byte(n[0] + n[1])}, n[1])
		return g.submit(attached.AppendPutObject(nil, uint64(n[0]), payload))
	case "deleteobject":
		return g.submit(attached.AppendDeleteObject(nil, uint64(n[0])))
	case "putkey":
		return g.submit(attached.AppendPutKey(nil, []byte(names[0]), []byte(names[1])))
	case "deletekey":
		return g.submit(attached.AppendDeleteKey(nil, []byte(names[0])))
	case "getobject":
		return g.getObject(uint64(n[0]), n[1])
	case "getkey":
		b := make([]byte, n[1])
		if n[0], err = g.state.Lookup([]byte(names[0]), b); errors.Is(err, attached.ErrNotFound) {
			return "no key", nil
		}
		answer = "key " + string(b[:n[0]])
	case "position":
		var at, run uint64
		at, run, err = g.state.Position()
		answer = fmt.Sprintf("position %d %s", at, map[bool]string{true: "same", false: "other"}[run == g.stateRun])
		if err == nil {
			g.stateRun = run
		}
	case "churn":
		answer = fmt.Sprint("churned ", n[0])
		err = g.churn(n[0], keys)
	case "verify":
		return g.verify(n[0], keys)
	}
	return answer, err
}

func (g *goLibrary) getObject(object uint64, room int) (string, error) {
	b, sum := make([]byte, room), 0
	n, version, err := g.state.Get(object, b)
	if errors.Is(err, attached.ErrNotFound) {
		return fmt.Sprint("no object ", version), nil
	}
	for _, one := range b[:n] {
		sum += int(one)
	}
	return fmt.Sprintf("object %d %d %d", n, version, sum), err
}

// send commits a message that fits, and returns its sequence.
func (g *goLibrary) send(message []byte) (sequence uint64, err error) {
	if err := g.claimOne(); err != nil {
		return 0, err
	}
	f := g.frames[0]
	if g.frames = nil; len(message) > len(f.Data) {
		g.sender.Discard(f)
		return 0, errors.New("the message does not fit")
	}
	return g.sender.Commit(f, copy(f.Data, message))
}

// claimOne waits for a frame.
func (g *goLibrary) claimOne() error {
	for {
		if _, err := g.run([]string{"claim", "1"}); !errors.Is(err, attached.ErrFull) {
			return err
		}
		if _, err := g.collect(); err != nil {
			return err
		}
	}
}

// submit sends an update, and waits until it is done.
func (g *goLibrary) submit(message []byte) (string, error) {
	if _, err := g.send(message); err != nil {
		return "", err
	}
	position, err := g.finish()
	return fmt.Sprint("updated ", position), err
}

// finish waits until all messages are done, and returns the last one's position.
func (g *goLibrary) finish() (position uint64, err error) {
	for err == nil && g.sender.Unfinished() > 0 {
		var at uint64
		at, err = g.collect()
		position = max(position, at)
	}
	return position, err
}

// churn updates 16 objects or 1000 keys at full rate.
func (g *goLibrary) churn(n int, keys bool) error {
	for ; n > 0; n-- {
		message := putWords(g.churned)
		if keys {
			message = putKeys(g.churned)
		}
		if _, err := g.send(message); err != nil {
			return err
		}
		g.churned++
	}
	_, err := g.finish()
	return err
}

func putWords(n uint64) []byte {
	var payload []byte
	for range 1 + n%churnWords {
		payload = binary.NativeEndian.AppendUint64(payload, n)
	}
	return attached.AppendPutObject(nil, n%churnObjects, payload)
}

func putKeys(n uint64) []byte {
	k := n
	if n >= churnKeys {
		k = ((n-churnKeys)/2*2 + 1) % churnKeys
	}
	key := fmt.Sprintf("k%04d", k)
	if n >= churnKeys && n%2 == 0 {
		return attached.AppendDeleteKey(nil, []byte(key))
	}
	return attached.AppendPutKey(nil, []byte(key), []byte(strings.Repeat(key, int(1+n%churnRepeats))))
}

// verify reads what churn writes.
func (g *goLibrary) verify(n int, keys bool) (string, error) {
	b := make([]byte, 8*churnWords)
	for sound, turn := 0, uint64(0); sound < n; turn += 7 {
		read := g.verifyObject
		if keys {
			read = g.verifyKey
		}
		switch err := read(turn, b); {
		case err == nil:
			sound++
		case !errors.Is(err, attached.ErrAgain):
			return "", err
		}
	}
	return fmt.Sprint("sound ", n), nil
}

func (g *goLibrary) verifyObject(turn uint64, b []byte) error {
	n, _, err := g.state.Get(turn%churnObjects, b)
	if err != nil {
		return err
	}
	word := binary.NativeEndian.Uint64(b)
	for i := 0; i < n; i += 8 {
		if binary.NativeEndian.Uint64(b[i:]) != word {
			return fmt.Errorf("object %d is a mixture", turn%churnObjects)
		}
	}
	if word%churnObjects != turn%churnObjects || n != 8*int(1+word%churnWords) {
		return fmt.Errorf("object %d has %d bytes of %d", turn%churnObjects, n, word)
	}
	return nil
}

func (g *goLibrary) verifyKey(turn uint64, b []byte) error {
	key := fmt.Sprintf("k%04d", turn%churnKeys)
	n, err := g.state.Lookup([]byte(key), b)
	switch {
	case errors.Is(err, attached.ErrNotFound) && turn%2 == 1:
		return nil
	case err == nil && (n == 0 || string(b[:n]) != strings.Repeat(key, n/len(key))):
		return fmt.Errorf("key %s has %q", key, b[:n])
	}
	return err
}
