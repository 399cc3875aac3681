// Package identity names nodes.
package identity

import (
	"crypto/rand"
	"os"
	"strings"
)

// Random is the host's name with a suffix of 40 random bits.
func Random() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "node"
	}
	return host + "-" + strings.ToLower(rand.Text()[:8])
}
