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
		"BaseURL is":     {},
		"has a user":     {BaseURL: "http://a:b@localhost"},
		"in the clear":   {BaseURL: "http://locks.example", Token: servetest.Token},
		"TTL is 1ns":     {BaseURL: "http://localhost", TTL: 1},
		"both set":       {BaseURL: "https://localhost", TLS: &tls.Config{MinVersion: tls.VersionTLS12}, HTTPClient: http.DefaultClient},
		"Timeout is -1s": {BaseURL: "http://localhost", Timeout: -time.Second},
	} {
		_, err := leasehttp.NewClient(c)
		require.ErrorContains(t, err, want)
	}
}
