package leaseserver

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/strictjson"
	"github.com/pglatch/pglatch/internal/test/configdoc"
	"github.com/pglatch/pglatch/internal/test/frozen"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// Patterns returns the patterns of all routes.
func (s *Server) Patterns() (all []string) {
	for _, r := range s.routes() {
		all = append(all, r.pattern)
	}
	return all
}

// Stands reports whether the store has refused a lock to the first request that waits for it, and
// the request now waits: a release hands the lock over to it.
func (s *Server) Stands(name string) bool {
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	lq := q.locks[name]
	if lq == nil || lq.confirmed == (boottime.Moment{}) {
		return false
	}
	first := lq.waiters.Front().Value.(*waiter)
	return !first.own && !first.handed
}

// A forwarder answers before its own HTTP server gives the request up, whatever the times are.
func TestAForwardedRequestIsAnsweredBeforeTheWriteTimeout(t *testing.T) {
	t.Parallel()
	for _, c := range []Config{{}, {MaxWait: time.Hour}, {StoreTimeout: time.Minute}, {StoreTimeout: time.Minute, ReadTimeout: time.Millisecond, MaxWait: time.Millisecond}} {
		c.Store, c.Registry = leasetest.NewStore(), prometheus.NewRegistry()
		s, err := New(c)
		require.NoError(t, err)
		answered := s.ReadTimeout + s.forwardTime(s.MaxWait) + s.StoreTimeout // forwarded in vain, and then asked here
		assert.Greater(t, s.http.WriteTimeout, answered)
		assert.Greater(t, s.http.WriteTimeout, s.ReadTimeout+s.answerTime(s.MaxWait))
	}
}

func TestCommentsOfTheConfigSayItsDefaults(t *testing.T) {
	t.Parallel()
	var config Config
	config.setDefaults()
	configdoc.Check(t, config, "Burst") // twice the Rate, and at least 1
}

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

// What is taken without a look at its names has none that are refused.
func FuzzStrict(f *testing.F) {
	for _, body := range []any{
		wire.NewAcquireBody(lease.AcquireRequest{Holder: "a", TTL: time.Minute, IdempotencyKey: "k", Metadata: map[string]string{"<b>": "ü"}}),
		wire.ReleaseBody{ClaimBody: wire.NewClaimBody(lease.Claim{Holder: "a", ID: "i", Token: 1<<64 - 1}), IdempotencyKey: "k"},
		wire.RenewBody{ClaimBody: wire.NewClaimBody(lease.Claim{Holder: "a", ID: "i", Token: 7}), TTLMS: 1},
		wire.BatchBody{Operations: []wire.BatchOperation{
			{Acquire: &wire.BatchAcquireBody{Lock: "a", AcquireBody: wire.NewAcquireBody(lease.AcquireRequest{Holder: "a", TTL: time.Minute})}},
			{Renew: &wire.BatchRenewBody{Lock: "<b>", RenewBody: wire.NewRenewBody(lease.RenewRequest{TTL: time.Minute})}},
			{Release: &wire.BatchReleaseBody{Lock: "c"}},
			{},
		}},
	} {
		data, err := json.Marshal(body)
		require.NoError(f, err)
		require.True(f, strictjson.IsCanonical(data, body), "what a client sends is taken so")
		f.Add(data)
	}
	for _, odd := range []string{
		`{}`, `null`, `[]`, `{"owner_id":"a","owner_id":"b"}`, `{"OWNER_ID":"a"}`, `{"owner_id":null}`, `{"ttl_ms":1e3}`, `{"owner_id":"a"}x`, `{"owner_id":"\\ud800"}`,
		`{"owner_id":"","ttl_ms":0,"metadata":{"a":"1","a":"2"}}`, `{"owner_id":"a","ttl_ms":1,"wait":1}`,
		`{"operations":[{"renew":{"lock":"a","Lock":"b"}}]}`, `{"operations":[{"renew":{"ClaimBody":{}}},null]}`,
		`{"operations":[{"acquire":{"lock":"a","lock":"b"}}]}`, `{"operations":[{"acquire":null,"Renew":{}}]}`, `{"operations":[{"release":{"wait":"1s"}},[]]}`,
	} {
		f.Add([]byte(odd))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, body := range []any{new(wire.AcquireBody), new(wire.RenewBody), new(wire.ReleaseBody), new(wire.BatchBody), new(wire.AdoptBody)} {
			if json.Unmarshal(data, body) == nil && strictjson.IsCanonical(data, body) {
				require.NoError(t, strictjson.Check(data, body), "%s", data)
			}
		}
	})
}
