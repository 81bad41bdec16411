//go:build invariants

package transport

import "testing"

// TestFastPathIsExclusive: a build with invariants panics if the engine is used between Place and
// Finish.
func TestFastPathIsExclusive(t *testing.T) {
	e := &Engine{fastOpen: true}
	for name, use := range map[string]func(){"Receive": func() { e.Receive(0, nil) }, "Progress": func() { e.Progress(0, nil) }} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s did not panic", name)
				}
			}()
			use()
		}()
	}
}
