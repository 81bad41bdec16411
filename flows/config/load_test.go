package config

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/unifiedd/unifiedd/internal/golden"
	"github.com/unifiedd/unifiedd/internal/linktype"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// minimal is the shortest valid configuration.
const minimal = `flows: [{name: md, from: {interface: eth0}, to: {file: /captures/md}}]`

// byValue compares addresses by value.
var byValue = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

// TestValid: each setting has the value that the file says, at its place, and all others their defaults. full.yaml has
// all settings, kinds.yaml the fewest for each kind of flow, bounds.yaml the least and the greatest values.
func TestValid(t *testing.T) {
	for file, checked := range map[string][]string{
		"full":   {"udp and port 5000", "udp and dst port 5000", "udp port 1900", "tcp"},
		"kinds":  nil,
		"bounds": {"udp dst port 5000", `é日"'\ x`},
	} {
		t.Run(file, func(t *testing.T) {
			var filters []string
			c, err := Load("testdata/"+file+".yaml", Options{CheckFilter: func(expr string, _ linktype.Type) error {
				filters = append(filters, expr)
				return nil
			}, CheckObject: func(file, program string) (string, error) { return "digest", nil }})
			testenv.Must(t, err)
			golden.Compare(t, "testdata/"+file+".txt", strings.Join(listing("", reflect.ValueOf(*c)), "\n")+"\n")
			if diff := cmp.Diff(checked, filters); diff != "" {
				t.Errorf("filters checked (-want +got):\n%s", diff)
			}
		})
	}
}

// listing returns a line for each struct below a path, with those of its values that are not zero.
func listing(path string, v reflect.Value) []string {
	line, inner := path+":", []string(nil)
	for i := range v.NumField() {
		key, f := keyOf(v.Type().Field(i).Name), v.Field(i)
		if f.IsZero() {
			continue
		}
		if f.Kind() == reflect.Pointer {
			f = f.Elem()
		}
		_, text := f.Interface().(fmt.Stringer)
		switch {
		case !text && f.Kind() == reflect.Struct:
			inner = append(inner, listing(join(path, key), f)...)
		case !text && f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct && f.Type().Elem() != reflect.TypeFor[netip.Addr]():
			for i := range f.Len() {
				inner = append(inner, listing(fmt.Sprintf("%s[%d]", join(path, key), i), f.Index(i))...)
			}
		case f.Kind() == reflect.String, f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.String:
			line += fmt.Sprintf(" %s=%q", key, f.Interface())
		default:
			line += fmt.Sprintf(" %s=%v", key, f.Interface())
		}
	}
	return append([]string{line}, inner...)
}

func TestDefaults(t *testing.T) {
	c, err := Parse("min.yaml", []byte(minimal), Options{})
	testenv.Must(t, err)
	want := &Config{
		Region:  Region{Size: 256 * MiB, Pages: PagesAuto, Frame: 4096, Extent: MiB, Extents: 16, Reserve: true},
		Workers: []Worker{{Name: "main", Wait: WaitSleep, Sleep: 200 * time.Microsecond}},
		Log:     Log{Level: LevelInfo, Format: FormatText},
		Control: Control{Socket: "/run/unifiedd/control.sock", State: "/var/lib/unifiedd"},
		Trace:   Trace{Events: 4096},
		Attach:  Attach{Socket: "/run/unifiedd/attach.sock"},
		Flows: []Flow{{
			Name: "md", Worker: "main", Restart: RestartOnFailure, Pos: Pos{"min.yaml", 1, 9},
			From: From{Interface: "eth0", Engine: EngineXDP, ZeroCopy: ZeroCopyPrefer, Timestamps: TimestampsSoftware, Promiscuous: true, Priority: DefaultPriority},
			To: To{
				File: "/captures/md", Layout: LayoutPacked, Prepare: PrepareAllocate, KeepFree: DefaultRoom,
				Segment: Segment{Size: GiB}, Flush: 500 * time.Millisecond, Durable: time.Second,
			},
		}},
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// flowWith returns a configuration with further lines in a flow's from and to.
func flowWith(from, to string) string {
	return fmt.Sprintf("flows:\n- name: md\n  from:\n    interface: eth0\n    %s\n  to:\n    file: /captures/md\n    %s\n", from, to)
}

func TestAccepted(t *testing.T) {
	tests := map[string]struct {
		text string
		got  func(*Config) any
		want any
	}{
		"size without unit": {minimal + "\nregion: {size: 8388608, extents: 2}",
			func(c *Config) any { return c.Region.Size }, 8 * MiB},
		"size rounded to 2 MiB": {minimal + "\nregion: {size: 33MiB}",
			func(c *Config) any { return c.Region.Size }, 34 * MiB},
		"size rounded to 1 GiB": {minimal + "\nregion: {pages: 1GiB}",
			func(c *Config) any { return c.Region.Size }, GiB},
		"size rounded to ordinary pages": {minimal + "\nregion: {pages: ordinary, size: 33554433}",
			func(c *Config) any { return c.Region.Size }, 32*MiB + Size(os.Getpagesize())},
		"region beyond 4 GiB": {minimal + "\nregion: {size: 5GiB, extents: 2560}",
			func(c *Config) any { return c.Region.Size }, 5 * GiB},
		"exactly half for extents": {minimal + "\nregion: {size: 8MiB, extents: 4}",
			func(c *Config) any { return c.Region.Extents }, 4},
		"byte order mark": {"\ufeff" + minimal,
			func(c *Config) any { return c.Flows[0].Pos.Column }, 9},
		"CR LF": {"region:\r\n  node: 3\r\n" + minimal + "\r\n",
			func(c *Config) any { return c.Flows[0].Pos.Line }, 3},
		"explicit document": {"---\n" + minimal + "\n...\n",
			func(c *Config) any { return c.Flows[0].Name }, "md"},
		"sections without content": {minimal + "\nregion:\nlog:\nmetrics: ~\ncontrol: {}",
			func(c *Config) any { return c.Region.Extents }, 16},
		"a word some readers take for false": {strings.Replace(minimal, "eth0", "no", 1),
			func(c *Config) any { return c.Flows[0].From.Interface }, "no"},
		"a number for a name": {strings.Replace(minimal, "md", "0123", 1) + "\nuser: 1000",
			func(c *Config) any { return c.Flows[0].Name + c.User }, "01231000"},
		"quoted number": {flowWith(`ring: "64"`, ""),
			func(c *Config) any { return c.Flows[0].From.Ring }, 64},
		"all queues": {flowWith("queues: all", ""),
			func(c *Config) any { return c.Flows[0].From.Queues == nil }, true},
		"written": {flowWith("", "durable: written"),
			func(c *Config) any { return c.Flows[0].To.Durable }, Written},
		"slot is zeroed": {flowWith("", "layout: slot"),
			func(c *Config) any { return c.Flows[0].To.Prepare }, PrepareZero},
		"segment rounded": {flowWith("", "segment: {size: 1048577}"),
			func(c *Config) any { return c.Flows[0].To.Segment.Size }, MiB + 4*KiB},
		"the only worker": {minimal + "\nworkers: [{name: w}]",
			func(c *Config) any { return c.Flows[0].Worker }, "w"},
		"no filter hook": {flowWith("filter: whatever !", ""),
			func(c *Config) any { return c.Flows[0].From.Filter }, "whatever !"},
		"merge": {"flows:\n- &a {name: a, from: {interface: e0, ring: 64}, to: &t {file: /a, flush: 20ms}}\n" +
			"- {<<: *a, name: b, from: {interface: e1}, to: {<<: [*t], file: /b}}",
			func(c *Config) any { return []any{c.Flows[1].From.Ring, c.Flows[1].To.Flush} },
			[]any{0, 20 * time.Millisecond}},
		"alias": {"flows:\n- {name: a, from: {interface: e0, ring: &r 64}, to: {file: /a}}\n" +
			"- {name: b, from: {interface: e1, ring: *r}, to: {file: /b}}",
			func(c *Config) any { return c.Flows[1].From.Ring }, 64},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := Parse("x.yaml", []byte(test.text), Options{})
			testenv.Must(t, err)
			if diff := cmp.Diff(test.want, test.got(c)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestHostile: the parser quickly refuses input that could cost much time or memory, and reports a
// place and a reason.
func TestHostile(t *testing.T) {
	queues := "[" + strings.Repeat("0,", 20_000) + "0]"
	bomb := "flows:\n- {name: a, from: &f {interface: e, queues: " + queues + "}, to: {file: /a}}\n" +
		strings.Repeat("- {from: *f}\n", 50_000)
	merges := "flows:\n- &a0 {name: a}\n"
	for i := range 30 {
		merges += fmt.Sprintf("- &a%d {<<: [*a%d, *a%d, *a%d, *a%d]}\n", i+1, i, i, i, i)
	}
	tests := map[string]struct {
		text, want string
	}{
		"larger than a megabyte": {strings.Repeat("#\n", MaxFile/2) + "#", "1:1: the file is larger than 1 MiB"},
		"not UTF-8":              {"a: b\nuser: é\xff\n", "2:8: the text is not UTF-8"},
		"not UTF-8 but UTF-16":   {"\xff\xfea\x00", "1:1: the text is not UTF-8"},
		"control character":      {"user: a\x00b\n", "not YAML: "},
		"too many values":        {"region: {node: [" + strings.Repeat("0,", 400_000) + "]}", "region.node: a single value is needed"},
		"too many aliases":       {bomb, "more than 100000 values"},
		"too many merges":        {merges, "merge keys are nested more than 8 deep"},
		"deep":                   {strings.Repeat("[", 50_000), "not YAML: "},
		"deep mappings":          {strings.Repeat("{a: ", 9_000), "not YAML: "},
		"many keys":              {"{" + strings.Repeat("flowss, ", 20_000) + "}", `unknown key "flowss"`},
		"alias of itself":        {"region: &r {node: *r}", "region.node: a single value is needed"},
		"long key":               {strings.Repeat("k", 500_000) + ": 1", `unknown key "kkkk`},
		"size beyond 64 bits":    {"region: {size: 99999999TiB}", `region.size: "99999999TiB" is too large`},
		"size near 64 bits":      {"region: {size: 18446744073709551615}", "region.size: at most 64TiB is possible"},
		"number beyond 64 bits":  {"region: {node: 18446744073709551616}", "is not a whole number"},
		"second text not YAML":   {minimal + "\n---\n\t[", "not YAML: "},
		"relative names":         {strings.Replace(minimal, "/captures/md", "/"+strings.Repeat("x", 215), 1), "the name has 215 bytes; at most 214"},
		"zero byte in a path":    {strings.Replace(minimal, "/captures/md", `"/a\0b"`, 1), "the path has control characters"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			_, err := Parse("x.yaml", []byte(test.text), Options{})
			if took := time.Since(start); took > time.Minute {
				t.Errorf("took %s", took)
			}
			checkErrors(t, test.text, err)
			if len(err.Error()) > 100*maxLine {
				t.Errorf("the message has %d bytes", len(err.Error()))
			}
			for _, p := range err.(*Errors).Problems {
				if strings.Contains(p.Pos().String()+": "+p.Message, test.want) {
					return
				}
			}
			t.Errorf("%q is not in:\n%s", test.want, err)
		})
	}
}

func TestLoadWithoutFile(t *testing.T) {
	c, err := Load(filepath.Join(t.TempDir(), "none.yaml"), Options{})
	if c != nil || !errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(err.Error(), "read configuration: ") {
		t.Errorf("got %v, %v", c, err)
	}
	c, err = Load(t.TempDir(), Options{})
	if c != nil || err == nil {
		t.Errorf("a directory gave %v, %v", c, err)
	}
	c, err = Load("/dev/zero", Options{})
	if c != nil || err == nil {
		t.Errorf("an endless file gave %v, %v", c, err)
	}
}

// TestValidate: Validate checks a Config from a program like a file; its problems have no places.
func TestValidate(t *testing.T) {
	c := Default()
	f := NewFlow("cli")
	f.From.Interface = "eth0"
	f.From.Filter = "udp !"
	f.To.File = "relative"
	f.To.Flush = time.Minute
	c.Flows = []Flow{f, f}
	c.Complete()
	err := c.Validate(Options{CheckFilter: noBang})
	const want = `flows[0].from.filter: unexpected "!" (at byte 4 of the filter)
flows[0].to.file: "relative" is not an absolute path
flows[0].to.flush: 1m0s is not from 10ms to 1s
flows[1].name: flow "cli" is taken already, by flows[0].name
flows[1].from.filter: unexpected "!" (at byte 4 of the filter)
flows[1].to.file: "relative" is not an absolute path
flows[1].to.flush: 1m0s is not from 10ms to 1s
flows[1].to.file: file "relative" is taken already, by flows[0].to.file`
	if err == nil {
		t.Fatal("no error")
	}
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	f.From.Filter, f.To.File, f.To.Flush = "udp", "/captures/x", time.Second
	c.Flows = []Flow{f}
	c.Complete()
	if err := c.Validate(Options{CheckFilter: noBang}); err != nil {
		t.Error(err)
	}
	f = NewFlow("cli")
	f.From.RDMA, f.From.Listen, f.To.File = "mlx5_0", ":7471", "/captures/x"
	c.Flows = []Flow{f}
	c.Complete()
	if err := c.Validate(Options{}); err == nil || !strings.Contains(err.Error(), "flows[0].from.zero_copy: has a meaning only for a network interface") {
		t.Errorf("the defaults of another kind: %v", err)
	}
	if err := (&Config{}).Validate(Options{}); err == nil {
		t.Error("the zero Config is valid")
	}
}

func TestWords(t *testing.T) {
	for level, want := range map[Level]slog.Level{
		LevelDebug: slog.LevelDebug, LevelInfo: slog.LevelInfo, LevelWarn: slog.LevelWarn, LevelError: slog.LevelError,
	} {
		if got := level.Slog(); got != want {
			t.Errorf("%s is %s", level, got)
		}
	}
	if got := (Pos{"a.yaml", 2, 3}).String() + (Pos{}).String(); got != "a.yaml:2:3" {
		t.Errorf("places are %q", got)
	}
}
