package doctor

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

func example() *Report {
	r := &Report{Format: format}
	r.add("kernel", []Check{ok("release", "Linux 6.18"), warn("a longer name", "slow").with("faster %d", 1)})
	r.add("nothing", nil)
	r.add("disk /x", []Check{unknown("space", "?"), fail("there", "no")})
	return r
}

const table = `kernel
  ok    release        Linux 6.18
  warn  a longer name  slow
                       -> faster 1

disk /x
  ?     space          ?
  FAIL  there          no

1 FAIL, 1 warn, 1 ?, 1 ok
`

func TestTable(t *testing.T) {
	var b strings.Builder
	testenv.Must(t, example().Table(&b, false))
	if b.String() != table {
		t.Errorf("the table is\n%s\nwant\n%s", b.String(), table)
	}
}

func TestTableInColour(t *testing.T) {
	var b strings.Builder
	testenv.Must(t, example().Table(&b, true))
	plain := b.String()
	for _, c := range append(colours[:], "0") {
		plain = strings.ReplaceAll(plain, "\x1b["+c+"m", "")
	}
	if plain != table || !strings.Contains(b.String(), "\x1b[1;31mFAIL\x1b[0m") {
		t.Errorf("the table is\n%q", b.String())
	}
}

// TestJSON: the JSON has the fields that programs rely on.
func TestJSON(t *testing.T) {
	const want = `{"format":1,"state":"fail","sections":[` +
		`{"subject":"kernel","checks":[{"name":"release","state":"ok","detail":"Linux 6.18"},` +
		`{"name":"a longer name","state":"warn","detail":"slow","remedy":"faster 1"}]},` +
		`{"subject":"disk /x","checks":[{"name":"space","state":"unknown","detail":"?"},` +
		`{"name":"there","state":"fail","detail":"no"}]}]}`
	got, err := json.Marshal(example())
	testenv.Must(t, err)
	if string(got) != want {
		t.Errorf("JSON is\n%s\nwant\n%s", got, want)
	}
	var back Report
	testenv.Must(t, json.Unmarshal(got, &back))
	if back.State != Fail || back.Count(Warn) != 1 || back.Count(OK) != 1 {
		t.Errorf("read back: %+v", back)
	}
	if err := json.Unmarshal([]byte(`"good"`), new(State)); err == nil {
		t.Error("a state called good is accepted")
	}
}
