package leased

import (
	"fmt"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// What the names of leases say. All but the shards are under group, so that one list shows them.
const (
	inShards  = "/shard/"
	inGroup   = "/group/"
	ofMember  = "member/" // and the session's id
	ofPin     = "pin/"    // and the shard
	ofDrain   = "drain/"  // and the member's identity
	ofBell    = "bell"
	slotsSign = "::" // what lock servers keep for locks that several hold
)

func (c Config) shard(name string) string { return c.Name + inShards + escape(name) }

func (c Config) group(kind, name string) string { return c.Name + inGroup + kind + escape(name) }

// escape makes a part of a lease's name of any text: what names of leases cannot have, or have for
// something else, is percent-encoded.
func escape(text string) string {
	if text == "." || text == ".." {
		return strings.ReplaceAll(text, ".", "%2E")
	}
	var b strings.Builder
	for i, r := range text {
		size := utf8.RuneLen(r)
		if r == utf8.RuneError {
			_, size = utf8.DecodeRuneInString(text[i:])
		}
		part := text[i : i+size]
		bad := r == utf8.RuneError && size == 1 || unicode.IsControl(r) || r == '%' || r == '/' || strings.HasPrefix(text[i:], slotsSign)
		for j := 0; j < len(part) && bad; j++ {
			_, _ = fmt.Fprintf(&b, "%%%02X", part[j])
		}
		if !bad {
			b.WriteString(part)
		}
	}
	return b.String()
}

// unescape is the other way; false = that is no text that escape makes.
func unescape(part string) (text string, ok bool) {
	text, err := url.PathUnescape(part)
	return text, err == nil && escape(text) == part
}
