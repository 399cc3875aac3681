package leaseserver_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease/leaseserver"
)

type object = map[string]any

// A document is the server's own description, to hold answers against.
type document struct{ root object }

func readDocument(t *testing.T, body string) document {
	t.Helper()
	d := document{}
	require.NoError(t, json.Unmarshal([]byte(body), &d.root))
	return d
}

// resolve follows a reference.
func (d document) resolve(node object) object {
	for {
		ref, ok := node["$ref"].(string)
		if !ok {
			return node
		}
		at := any(d.root)
		for part := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
			at = at.(object)[part]
		}
		node = at.(object)
	}
}

// response is the description of an answer.
func (d document) response(t *testing.T, path, method string, status int) object {
	t.Helper()
	route, ok := d.root["paths"].(object)[path].(object)[strings.ToLower(method)].(object)
	require.True(t, ok, "%s %s is not described", method, path)
	response, ok := route["responses"].(object)[strconv.Itoa(status)].(object)
	require.True(t, ok, "%s %s with %d is not described", method, path, status)
	return d.resolve(response)
}

// check holds a value against a schema, as far as this document's schemas go.
func (d document) check(t *testing.T, where string, schema object, value any) {
	t.Helper()
	schema = d.resolve(schema)
	if enum, ok := schema["enum"].([]any); ok {
		assert.Contains(t, enum, value, where)
	}
	switch schema["type"] {
	case "object":
		fields, ok := value.(object)
		require.True(t, ok, "%s is no object", where)
		d.checkFields(t, where, schema, fields)
	case "array":
		items, ok := value.([]any)
		require.True(t, ok, "%s is no array", where)
		for i, item := range items {
			d.check(t, where+"/"+strconv.Itoa(i), schema["items"].(object), item)
		}
	case "integer":
		n, err := strconv.ParseInt(string(value.(json.Number)), 10, 64)
		require.NoError(t, err, where)
		if minimum, ok := schema["minimum"].(float64); ok {
			assert.GreaterOrEqual(t, float64(n), minimum, where)
		}
	case "boolean":
		require.IsType(t, true, value, where)
	case "string":
		require.IsType(t, "", value, where)
		if schema["format"] == "date-time" {
			_, err := time.Parse(time.RFC3339Nano, value.(string))
			require.NoError(t, err, where)
		}
	default:
		require.Fail(t, "schema without a type that the test knows", where)
	}
}

func (d document) checkFields(t *testing.T, where string, schema, fields object) {
	t.Helper()
	required, _ := schema["required"].([]any)
	for _, name := range required {
		assert.Contains(t, fields, name, where)
	}
	properties, described := schema["properties"].(object)
	for name, value := range fields {
		property, ok := properties[name].(object)
		if described {
			require.True(t, ok, "%s/%s is not described", where, name)
		} else if property, ok = schema["additionalProperties"].(object); !ok {
			continue
		}
		d.check(t, where+"/"+name, property, value)
	}
}

// checkAnswer holds a real answer against the document.
func (d document) checkAnswer(t *testing.T, path, method string, a answer) {
	t.Helper()
	response := d.response(t, path, method, a.status)
	media, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
	content, ok := response["content"].(object)
	if !ok {
		assert.Empty(t, a.body)
		return
	}
	require.Contains(t, content, media)
	if !strings.HasSuffix(media, "json") {
		return
	}
	decoder := json.NewDecoder(strings.NewReader(a.body))
	decoder.UseNumber()
	var value any
	require.NoError(t, decoder.Decode(&value))
	d.check(t, path, content[media].(object)["schema"].(object), value)
}

func TestTheDocumentDescribesEveryRouteAndNoOther(t *testing.T) {
	t.Parallel()
	s, h := servetest.Serve(t, leaseserver.Config{})
	d := readDocument(t, send(t, h, http.MethodGet, "/v1/openapi.json", "").body)
	var described []string
	for path, methods := range d.root["paths"].(object) {
		for method := range methods.(object) {
			described = append(described, strings.ToUpper(method)+" "+path)
		}
	}
	assert.ElementsMatch(t, s.Patterns(), described)
}

func TestAnswersAreAsTheDocumentDescribes(t *testing.T) {
	t.Parallel()
	_, h := servetest.Serve(t, leaseserver.Config{MaxBody: 1000})
	d := readDocument(t, send(t, h, http.MethodGet, "/v1/openapi.json", "").body)
	claim := func(a answer) string {
		var l struct {
			ID    string `json:"lease_id"`
			Token int64  `json:"fencing_token"`
		}
		require.NoError(t, json.Unmarshal([]byte(a.body), &l))
		return `"owner_id":"a","lease_id":"` + l.ID + `","fencing_token":` + strconv.FormatInt(l.Token, 10)
	}
	got := send(t, h, http.MethodPost, "/v1/locks/job/acquire", `{"owner_id":"a","ttl_ms":600000,"metadata":{"host":"x"}}`)
	mine := claim(got)
	const path = "/v1/locks/{lock}"
	const free = `"owner_id":"x","lease_id":"x","fencing_token":1`
	d.checkAnswer(t, path+"/acquire", http.MethodPost, got)
	for _, c := range []struct {
		verb, name, body string
		status           int
	}{
		{"/acquire", "job", `{"owner_id":"b","ttl_ms":600000}`, 409},
		{"/acquire", "job", `{`, 400},
		{"/acquire", "job", `{"owner_id":"b","ttl_ms":0}`, 422},
		{"/acquire", "job", strings.Repeat(" ", 1001), 413},
		{"/renew", "job", `{` + mine + `,"ttl_ms":600000}`, 200},
		{"/renew", "job", `{` + mine + `,"ttl_ms":600000,"metadata":{"host":"y"}}`, 200},
		{"/renew", "job", `{` + free + `,"ttl_ms":600000}`, 409},
		{"/renew", "none", `{` + free + `,"ttl_ms":600000}`, 404},
		{"/adopt", "job", `{"owner_id":"a","lease_id":"x"}`, 409},
		{"/adopt", "none", `{"owner_id":"a","lease_id":"x"}`, 404},
		{"/adopt", "job", `{` + strings.TrimSuffix(mine, `,"fencing_token":1`) + `}`, 200},
		{"/adopt", "job", `{"owner_id":"a"}`, 400},
		{"/release", "job", `{` + free + `}`, 409},
		{"/release", "none", `{` + free + `}`, 404},
		{"/release", "job", `{` + mine + `,"idempotency_key":"k"}`, 200},
		{"/release", "job", `[]`, 400},
	} {
		a := send(t, h, http.MethodPost, "/v1/locks/"+c.name+c.verb, c.body)
		require.Equal(t, c.status, a.status, "%s %s: %s", c.verb, c.body, a.body)
		d.checkAnswer(t, path+c.verb, http.MethodPost, a)
	}
	d.checkAnswer(t, path+"/acquire", http.MethodPost, send(t, h, http.MethodPost, "/v1/locks/job/acquire", "{}", "Content-Type", "text/plain"))
	held := claim(send(t, h, http.MethodPost, "/v1/locks/other/acquire", `{"owner_id":"a","ttl_ms":600000}`))
	for body, status := range map[string]int{
		`{"operations":[{"acquire":{"lock":"third","owner_id":"a","ttl_ms":600000}},{"renew":{"lock":"other",` + held + `,"ttl_ms":600000}},{"release":{"lock":"other",` + held + `}}]}`: 200,
		`{"operations":[{"acquire":{"lock":"third","owner_id":"b","ttl_ms":1,"wait":"1s"}},{"renew":{"lock":"third",` + free + `,"ttl_ms":600000}},{}]}`:                                 200,
		`{"operations":[{"acquire":{"lock":"other","Lock":"none"}}]}`:                    400,
		`{"operations":[` + strings.Repeat("{},", 1000) + `{}]}`:                         413,
		`{"operations":[{"release":{"lock":"o","fencing_token":99999999999999999999}}]}`: 422,
	} {
		a := send(t, h, http.MethodPost, "/v1/batch", body)
		require.Equal(t, status, a.status, "%s: %s", body, a.body)
		d.checkAnswer(t, "/v1/batch", http.MethodPost, a)
	}
	d.checkAnswer(t, path, http.MethodGet, send(t, h, http.MethodGet, "/v1/locks/job", ""))
	d.checkAnswer(t, path, http.MethodGet, send(t, h, http.MethodGet, "/v1/locks/none", ""))
	for _, target := range []string{"/v1/locks?limit=1", "/v1/locks?limit=0", "/v1/locks?limit=x", "/v1/openapi.json", "/metrics", "/healthz", "/readyz"} {
		route, _, _ := strings.Cut(target, "?")
		d.checkAnswer(t, route, http.MethodGet, send(t, h, http.MethodGet, target, ""))
	}
}

func TestTheDocumentKnowsEveryFieldOfARequest(t *testing.T) {
	t.Parallel()
	_, h := servetest.Serve(t, leaseserver.Config{})
	d := readDocument(t, send(t, h, http.MethodGet, "/v1/openapi.json", "").body)
	for verb, schema := range map[string]string{"acquire": "AcquireRequest", "renew": "RenewRequest", "release": "ReleaseRequest", "adopt": "AdoptRequest"} {
		described := d.root["components"].(object)["schemas"].(object)[schema].(object)["properties"].(object)
		for _, field := range []string{"owner_id", "ttl_ms", "lease_id", "fencing_token", "metadata", "idempotency_key", "lock_delay_ms", "min_hold_ms", "max_lifetime_ms"} {
			a := send(t, h, http.MethodPost, "/v1/locks/job/"+verb, `{"`+field+`":null}`)
			_, known := described[field]
			assert.Equal(t, !known, strings.Contains(a.body, "unknown field"), "%s of %s: %s", field, verb, a.body)
		}
	}
}
