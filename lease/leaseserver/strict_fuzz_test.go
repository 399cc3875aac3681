package leaseserver

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/strictjson"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
)

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
