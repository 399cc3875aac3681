package servecmd

import (
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader/activeserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// A Kubernetes pod's IP has no brackets, and a manifest cannot add them for one family alone.
func TestAnAdvertisedURLMayHaveAnAddressOfEitherFamily(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"https://10.0.0.7:8443":                               "https://10.0.0.7:8443",
		"https://fd00:10:244::5:8443":                         "https://[fd00:10:244::5]:8443",
		"https://fd00:10:244:1:2:3:4:5:8443":                  "https://[fd00:10:244:1:2:3:4:5]:8443",
		"https://2001:db8:1111:2222:3333:4444:5555:6666:8443": "https://[2001:db8:1111:2222:3333:4444:5555:6666]:8443",
		"http://::1:80/":                                      "http://[::1]:80/",
		"https://[fd00::5]:8443":                              "https://[fd00::5]:8443",
		"https://[fd00::5]":                                   "https://[fd00::5]",
		"https://locks-1.example":                             "https://locks-1.example",
		"https://locks-1.example:8443":                        "https://locks-1.example:8443",
	} {
		p := peers{advertise: given}
		got := p.url(&net.TCPAddr{IP: net.IPv6zero, Port: 8443}, true)
		assert.Equal(t, want, got)
		_, err := activeserver.New(activeserver.Config{URL: got, Store: leasetest.NewStore()})
		require.NoError(t, err, got)
	}
}
