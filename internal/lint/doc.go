// Package lint holds rules of this repository that no general tool knows, as
// tests: imports point down only, unsafe stays in files named for it, files and
// functions stay short, and programs do not link what only tests may use. It
// also runs the general tools (gofmt, vet, staticcheck, the cross build, the
// generators), so that their findings count as tests.
// "go test ./internal/lint" names each place that breaks one.
package lint
