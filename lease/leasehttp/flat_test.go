package leasehttp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
)

// What flat takes, encoding/json takes for the same.
func FuzzFlat(f *testing.F) {
	now := time.Now()
	for _, body := range []any{
		newAcquireBody(lease.AcquireRequest{Holder: "a", TTL: time.Minute, IdempotencyKey: "k"}),
		releaseBody{claimBody: newClaimBody(lease.Claim{Holder: "a", ID: "i", Token: 1<<64 - 1}), IdempotencyKey: "k"},
		renewBody{claimBody: newClaimBody(lease.Claim{Holder: "a", ID: "i", Token: 7}), TTLMS: 1},
		newLeaseBody(lease.Lease{Claim: lease.Claim{Name: "n", Holder: "a", ID: "i", Token: 1}, AcquiredAt: now, ExpiresAt: now, Remaining: time.Second}),
	} {
		data, err := json.Marshal(body)
		require.NoError(f, err)
		f.Add(data)
	}
	for _, odd := range []string{
		`{}`, `{"owner_id":"a","owner_id":"b"}`, `{"OWNER_ID":"a"}`, `{"owner_id":null}`, `{"ttl_ms":01}`, `{"ttl_ms":1e3}`, `{"ttl_ms":"1"}`,
		`{"ttl_ms":9223372036854775808}`, `{"owner_id":"a"}x`, `{"owner_id":"a",}`, `{,}`, `{"owner_id":"\u0061"}`, `{"owner_id":"é"}`, `{"lock":1}`,
		`{"expires_at":"2026-01-01T00:00:00Z"}`, `{"expires_at":"2026-1-1T0:0:0Z"}`, `{"expires_at":""}`, `{"ttl_ms":1 }`,
	} {
		f.Add([]byte(odd))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, bodies := range [][2]flatBody{
			{new(acquireBody), new(acquireBody)},
			{new(renewBody), new(renewBody)},
			{new(releaseBody), new(releaseBody)},
			{new(releasedBody), new(releasedBody)},
			{new(leaseBody), new(leaseBody)},
		} {
			if flat(string(data), bodies[0].set) {
				require.NoError(t, json.Unmarshal(data, bodies[1]), "%s", data)
				require.Equal(t, bodies[1], bodies[0], "%s", data)
			}
		}
	})
}

// The bodies of every day are read the short way.
func TestOurOwnBodiesAreFlat(t *testing.T) {
	t.Parallel()
	l := lease.Lease{Claim: lease.Claim{Name: "n", Holder: "a", ID: "i", Token: 1}, AcquiredAt: time.Now(), ExpiresAt: time.Now(), Remaining: time.Second}
	request := newAcquireBody(lease.AcquireRequest{Holder: "a", TTL: time.Minute, IdempotencyKey: "k"})
	claim := newClaimBody(l.Claim)
	granted := newLeaseBody(l)
	for _, bodies := range [][2]flatBody{
		{&request, new(acquireBody)},
		{&renewBody{claim, 5}, new(renewBody)},
		{&releaseBody{claim, "k"}, new(releaseBody)},
		{&releasedBody{"n", claim}, new(releasedBody)},
		{&granted, new(leaseBody)},
	} {
		data, err := json.Marshal(bodies[0])
		require.NoError(t, err)
		require.True(t, flat(string(data), bodies[1].set), "%s", data)
		again, err := json.Marshal(bodies[1])
		require.NoError(t, err)
		require.JSONEq(t, string(data), string(again))
	}
	require.False(t, flat(`{"owner_id":"`+string(bytes.Repeat([]byte("a"), flatMost))+`"}`, new(acquireBody).set), "what is kept keeps the whole body")
}

// What plainHead takes, net/http takes for the same.
func FuzzHead(f *testing.F) {
	for _, head := range []string{
		"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nDate: x\r\n\r\n{}",
		"HTTP/1.1 409 Conflict\r\nContent-Type: application/problem+json\r\nCache-Control: no-store\r\nRetry-After: 1\r\nX-Content-Type-Options: nosniff\r\nContent-Length: 2\r\n\r\n{}",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n{}",
		"HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\n",
		"HTTP/1.1 100 Continue\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200 OK\r\n Content-Length: 2\r\n\r\n{}",
		"HTTP/1.1 200 \n\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 -20 OK\r\nContent-Length: 0\r\n\r\n",
	} {
		f.Add([]byte(head))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		size, a, length, ok := plainHead(data)
		if !ok {
			return
		}
		response, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(data)), nil)
		if err != nil {
			return // plainHead does not look into headers that mean nothing here
		}
		defer func() { _ = response.Body.Close() }()
		require.Equal(t, response.StatusCode, a.status)
		require.Equal(t, response.Header.Get("Content-Type"), strings.TrimSpace(a.contentType))
		require.EqualValues(t, response.ContentLength, length)
		require.False(t, response.Close)
		body, _ := io.ReadAll(response.Body)
		require.True(t, bytes.HasPrefix(data[size:], body))
	})
}
