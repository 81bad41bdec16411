package filter

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cilium/ebpf/asm"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// compiled returns the instructions of an expression that must be valid.
func compiled(t testing.TB, text string) (asm.Instructions, error) {
	t.Helper()
	e, err := Parse(text)
	testenv.Must(t, err)
	return e.Instructions()
}

func TestCodeIsShort(t *testing.T) {
	// Counted by hand: two instructions find the packet. Each test has five that check the length,
	// where it is not known yet, a load, and a jump. Two return.
	for text, want := range map[string]int{
		"":                           2,
		"ip":                         2 + 5 + 4 + 2,
		"ip proto 6":                 2 + 5 + 3 + 1 + 5 + 4 + 2,
		"ip and ip proto 6":          2 + 5 + 3 + 1 + 5 + 4 + 2,
		"ip src net 10.0.0.0/8":      2 + 5 + 3 + 1 + 5 + 5 + 2,
		"len >= 60":                  3 + 1 + 3 + 2,
		"not ip or ip":               2,
		"ip[2:2] > 5 and ip[8] = 64": 2 + 5 + 3 + 1 + 5 + 4 + 1 + 5 + 4 + 2,
	} {
		ins, err := compiled(t, text)
		testenv.Must(t, err)
		if len(ins) != want {
			t.Errorf("%q: %d instructions, want %d\n%v", text, len(ins), want, ins)
		}
	}
}

func TestJumpsStayInside(t *testing.T) {
	ins, err := compiled(t, "(host 10.0.0.1 or host ::1) and not (vlan 5 or port 80 and tcp) or ether host 02:00:00:00:00:01")
	testenv.Must(t, err)
	starts, total := map[int]bool{}, 0
	for _, i := range ins {
		starts[total] = true
		total += int(i.Size() / asm.InstructionSize)
	}
	at := 0
	for _, i := range ins {
		at += int(i.Size() / asm.InstructionSize)
		if op := i.OpCode.JumpOp(); op == asm.Exit || op == asm.InvalidJumpOp {
			continue
		}
		if i.Offset < 0 || !starts[at+int(i.Offset)] {
			t.Errorf("%v jumps to slot %d of %d", i, at+int(i.Offset), total)
		}
	}
	if last := ins[len(ins)-1]; last.OpCode.JumpOp() != asm.Exit {
		t.Errorf("ends with %v", last)
	}
}

func TestTooLongJumpIsAnError(t *testing.T) {
	list := make([]string, 10000)
	for i := range list {
		list[i] = fmt.Sprintf("10.0.%d.%d", i>>8, i&255)
	}
	hosts := "host " + strings.Join(list, " or ")
	if _, err := compiled(t, hosts); err != nil {
		t.Errorf("a list on its own: %v", err)
	}
	if _, err := compiled(t, "("+hosts+") and tcp"); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a list and more: %v, want ErrTooLarge", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"", "tcp port 80 or 443", "not (src and dst net 10/8) && vlan 5", "ether host 02:00:00:00:00:01",
		"port (80 or not 443) or ip6 proto 58", "host ::ffff:1.2.3.4 or portrange 1-2", "((tcp", "tcp[2]", "host 1.2.3.4/8",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := Parse(text)
		if err != nil {
			var at *Error
			if !errors.As(err, &at) || at.Offset() < 0 || at.Offset() > len(text) || at.Error() == "" {
				t.Fatalf("Parse(%q): %#v", text, err)
			}
			return
		}
		again, err := Parse(e.String())
		if err != nil || again.String() != e.String() {
			t.Fatalf("%q prints %q, which is read as %v, %v", text, e, again, err)
		}
		if _, err := e.Instructions(); err != nil && !errors.Is(err, ErrTooLarge) {
			t.Fatalf("compile %q: %v", text, err)
		}
	})
}

func BenchmarkParseAndCompile(b *testing.B) {
	for b.Loop() {
		if _, err := compiled(b, "tcp port 80 or 443 and not host 10.0.0.1"); err != nil {
			b.Fatal(err)
		}
	}
}
