// Package identity names nodes.
package identity

import (
	"crypto/rand"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxHost is the longest host name that an identity has.
const maxHost = 100

// Random is the host's name with a suffix of 40 random bits.
func Random() string {
	return host() + "-" + strings.ToLower(rand.Text()[:8])
}

// Process is the host's name and the process id, such as "web-3/4711".
func Process() string { return host() + "/" + strconv.Itoa(os.Getpid()) }

func host() string {
	name, err := os.Hostname()
	if err != nil || !usable(name) {
		return "node"
	}
	return name
}

// usable reports whether a host's name can be a part of an identity.
func usable(name string) bool {
	return name != "" && len(name) <= maxHost && Printable(name)
}

// Printable reports whether text is UTF-8 without control characters below the space.
func Printable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' })
}
