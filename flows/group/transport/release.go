package transport

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/unifiedd/unifiedd/flows/group/election"
)

// releaseField is a field that raft's message does not have. A member that does not know it ignores it, as protocol buffers
// require, and one that is told nothing shows nothing: members of two releases are in one group while it is upgraded.
const releaseField = 1000

// maxRelease is the largest length of a release.
const maxRelease = 63

// fieldOf returns the field with a release; nil: it cannot be said.
func fieldOf(release string) []byte {
	if !printable(release) {
		return nil
	}
	return protowire.AppendString(protowire.AppendTag(nil, releaseField, protowire.BytesType), release)
}

// printable reports whether a release may be shown to people: it has 1 to 63 characters of ASCII, without spaces.
func printable(release string) bool {
	if len(release) < 1 || len(release) > maxRelease {
		return false
	}
	for _, c := range []byte(release) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return true
}

// takeRelease removes all fields that raft does not know from a message of an election, and returns the release that is in
// one of them; empty: the sender does not say it.
func takeRelease(m *election.Message) (release string) {
	message := m.ProtoReflect()
	rest := message.GetUnknown()
	if len(rest) == 0 {
		return ""
	}
	message.SetUnknown(nil)
	for len(rest) > 0 {
		number, kind, n := protowire.ConsumeField(rest)
		if n < 0 {
			return release // the decoder has checked them
		}
		if number == releaseField && kind == protowire.BytesType {
			_, _, tag := protowire.ConsumeTag(rest)
			text, _ := protowire.ConsumeString(rest[tag:n])
			if printable(text) {
				release = text
			}
		}
		rest = rest[n:]
	}
	return release
}
