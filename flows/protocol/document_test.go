package protocol

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestDocument: docs/reference/protocol.md has the reasons with the texts that programs print. Its examples, and those of
// messages between members in docs/reference/group-protocol.md, equal the bytes that this package makes.
func TestDocument(t *testing.T) {
	text := ""
	for _, name := range []string{"reference/protocol.md", "reference/group-protocol.md"} {
		raw, err := os.ReadFile(filepath.Join("..", "..", "docs", filepath.FromSlash(name)))
		testenv.Must(t, err)
		text += string(raw)
	}
	for _, r := range append(Reasons(), None) {
		if row := fmt.Sprintf("| %d | `%s` | %s", uint8(r), r.String(), r.Error()); !strings.Contains(text, row) {
			t.Errorf("there is no row that begins %q", row)
		}
	}
	bytes := strings.NewReplacer(" ", "", "\n", "").Replace(text)
	bytes = strings.ReplaceAll(bytes, "(44zerobytes)", strings.Repeat("00", 44))
	for _, f := range forms() {
		if !strings.Contains(bytes, hex.EncodeToString(f.example)) {
			t.Errorf("the example of a %s is another: %x", f.name, f.example)
		}
	}
}
