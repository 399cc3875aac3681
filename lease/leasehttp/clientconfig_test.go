package leasehttp_test

import (
	"crypto/tls"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease/leasehttp"
)

func TestClientConfigsThatAreNotValidAreRefused(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]leasehttp.ClientConfig{
		"BaseURLs is":    {},
		"BaseURLs has":   {BaseURLs: []string{"http://localhost", "ftp://localhost"}},
		"has a user":     {BaseURLs: []string{"http://a:b@localhost"}},
		"absolute path":  {BaseURLs: []string{"unix:locks.sock"}},
		"have its Trans": {BaseURLs: []string{"unix:///x"}, HTTPClient: http.DefaultClient},
		"in the clear":   {BaseURLs: []string{"http://locks.example"}, Token: servetest.Token},
		"TTL is 1ns":     {BaseURLs: []string{"http://localhost"}, TTL: 1},
		"both set":       {BaseURLs: []string{"https://localhost"}, TLS: &tls.Config{MinVersion: tls.VersionTLS12}, HTTPClient: http.DefaultClient},
		"Timeout is -1s": {BaseURLs: []string{"http://localhost"}, Timeout: -time.Second},
	} {
		_, err := leasehttp.NewClient(c)
		require.ErrorContains(t, err, want)
	}
}
