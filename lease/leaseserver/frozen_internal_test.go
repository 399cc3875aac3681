package leaseserver

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/frozen"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// linesOf lists what a client can rely on: routes, parameters, fields, their types, what is required, and statuses. It
// leaves texts and examples out.
func linesOf(node any, at string) (facts []string) {
	switch n := node.(type) {
	case map[string]any:
		for name, member := range n {
			properties := strings.HasSuffix(at, "/properties")
			if !properties && (name == "description" || name == "summary" || name == "example" || name == "examples" || name == "info" || name == "operationId" || name == "tags") {
				continue
			}
			facts = append(facts, linesOf(member, at+"/"+strings.ReplaceAll(name, "/", "~1"))...)
		}
		return facts
	case []any:
		for _, element := range n {
			if o, ok := element.(map[string]any); ok && o["name"] != nil { // a parameter
				facts = append(facts, linesOf(o, fmt.Sprint(at, "[", o["name"], "]"))...)
				continue
			}
			facts = append(facts, linesOf(element, at+"[]")...)
		}
		return facts
	}
	return []string{fmt.Sprintf("%s = %v", at, node)}
}

func TestTheHTTPInterfaceIsFrozen(t *testing.T) {
	t.Parallel()
	var document any
	require.NoError(t, json.Unmarshal(openAPI, &document))
	frozen.Check(t, "http", linesOf(document, ""))
}

func TestMessagesBetweenServersAreFrozen(t *testing.T) {
	t.Parallel()
	facts := frozen.Constants(t, ".", "hopHeader|peerHeader|certificateHeader|waitedHeader|processHeader|challengeHeader|proofHeader|activeRoute|ElectionLock|idLength|kindChanged|kindWanted")
	frozen.Check(t, "servers", append(facts, frozen.Constants(t, "../postgres", "messageChannel")...))
}

func TestTheNamesOfMetricsAreFrozen(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	_, err := New(Config{Store: leasetest.NewStore(), Registry: registry})
	require.NoError(t, err)
	frozen.Check(t, "metrics", frozen.Metrics(t, registry))
}
