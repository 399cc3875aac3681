package middlewaretest

import (
	"net/url"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/namespace"
)

// A path names one entity on every router that accepts it.
type path struct {
	raw    string
	entity string // when all escapes are resolved, once
	must   bool   // every router serves it
	also   string // on a router whose last parameter takes the rest of the path, or that cuts a fragment
}

var paths = []path{
	{"/agents/42", "42", true, ""},
	{"/agents/042", "042", true, ""},
	{"/agents/-1", "-1", true, ""},
	{"/agents/4%32", "42", false, ""},
	{"/agents/acme%2Feu", "acme/eu", false, ""},
	{"/agents/acme%2feu%2F", "acme/eu/", false, ""},
	{"/agents/%2542", "%42", false, ""},
	{"/agents/%252F", "%2F", false, ""},
	{"/agents/a%20b", "a b", false, ""},
	{"/agents/a+b", "a+b", true, ""},
	{"/agents/a;b=c", "a;b=c", false, ""},
	{"/agents/a,b", "a,b", true, ""},
	{"/agents/a:b@c", "a:b@c", true, ""},
	{"/agents/A", "A", true, ""},
	{"/agents/%E6%97%A5%E6%9C%AC", "日本", false, ""},
	{"/agents/e%CC%81", "e\u0301", false, ""},
	{"/agents/日本", "日本", false, ""},
	{"/agents/%F0%9F%98%80", "\U0001F600", false, ""},
	{"/agents/%FF", "\xff", false, ""},
	{"/agents/%00", "\x00", false, ""},
	{"/agents/a%00b", "a\x00b", false, ""},
	{"/agents/%0D%0Ax", "\r\nx", false, ""},
	{"/agents/", "", false, ""},
	{"/agents//", "/", false, "/"},
	{"/agents", "", false, ""},
	{"/agents/.", ".", false, ""},
	{"/agents/..", "..", false, ""},
	{"/agents/...", "...", true, ""},
	{"/agents/%2e%2e", "..", false, ""},
	{"/agents/%2e", ".", false, ""},
	{"/agents/x/../42", "42", false, "x/../42"},
	{"/agents/./42", "42", false, "./42"},
	{"//agents/42", "42", false, ""},
	{"/agents//42", "42", false, "/42"},
	{"/agents/42/", "42", false, "42/"},
	{"/agents/42?id=43", "42", true, ""},
	{"/agents/42%3Fid=43", "42?id=43", false, ""},
	{"/agents/42#43", "42#43", false, "42"},
	{"/AGENTS/42", "42", false, ""},
	{"/agents/:id", ":id", false, ""},
	{"/agents/*", "*", false, ""},
	{"/agents/%zz", "%zz", false, ""},
	{"/agents/%", "%", false, ""},
	{"/agents/" + strings.Repeat("x", 1000), strings.Repeat("x", 1000), true, ""},
	{"/agents/" + strings.Repeat("x", 100_000), strings.Repeat("x", 100_000), false, ""},
}

// texts are entities as clients send them, each of which is escaped by its client.
var texts = []string{
	"42", "042", "-1", "9223372036854775807", "9223372036854775808", "a", "A", "a b", "a/b", "/", "..", ".", "%2F", "%", "+", "a;b", "?", "#", "日本",
	"e\u0301", "\u00e9", "\U0001F600", "\x00", "\r\n", "*", ":id", strings.Repeat("x", 1000), "",
}

var pathCases = []testCase{
	{name: "no path gets past the lock, or to another entity's", http: true, run: func(s *suite) {
		w := s.watch()
		for _, p := range paths {
			status := s.raw(w.server, p.raw)
			if w.check(p.raw, p.entity, p.also) {
				assert.Equal(s, 200, status, "%.100q", p.raw)
				continue
			}
			assert.False(s, p.must, "%.100q must be served; it is answered %d", p.raw, status)
			assert.True(s, status == 0 || status >= 300 && status < 500, "%.100q is answered %d", p.raw, status)
		}
	}},
	{name: "each entity has its own lock, whatever its text", run: func(s *suite) {
		w := s.watch()
		served := 0
		for _, text := range texts {
			answer, err := w.server.Call(s.Context(), text)
			if w.check(text, text, "") {
				assert.NoError(s, err)
				served++
				continue
			}
			if !s.f.RPC && err == nil {
				assert.True(s, answer.Status >= 300 && answer.Status < 500, "%.100q is answered %+v", text, answer)
			}
			assert.NotRegexp(s, "^[A-Za-z0-9-]+$", text, "%.100q must be served; it is answered %+v, %v", text, answer, err)
		}
		assert.Greater(s, served, len(texts)/2)
	}},
	{name: "a key stays as it was after its request", run: func(s *suite) {
		// A framework may reuse the memory of one request for the next one, and an observer of
		// locks may keep a key.
		var keys []namespace.Key
		r := s.replica()
		server := s.serve(r.config(), func(Exchange) string {
			for held := range r.Held() {
				keys = append(keys, held.Keys...)
			}
			return "done"
		})
		names := []string{"aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb", "cccccccccccccccc", "dddddddddddddddd"}
		for _, name := range names {
			_ = s.served(server, name)
		}
		require.Len(s, keys, len(names))
		for i, name := range names {
			assert.Equal(s, name, keys[i].Entity())
		}
	}},
}

// A watcher is a server that notes the keys that its requests hold.
type watcher struct {
	*suite
	server Server
	seen   []sight
}

// A sight is a handler's view: its entity, and the keys that are held.
type sight struct {
	id   string
	keys []namespace.Key
}

func (s *suite) watch() *watcher {
	s.Helper()
	r := s.replica()
	w := &watcher{suite: s}
	w.server = s.serve(r.config(), func(x Exchange) string {
		seen := sight{id: strings.Clone(x.ID)}
		for held := range r.Held() {
			seen.keys = append(seen.keys, held.Keys...)
		}
		w.seen = append(w.seen, seen)
		return "done"
	})
	return w
}

// check reports whether the handler ran. It checks that the handler held the lock of the entity,
// and saw that entity, with its escapes or without.
func (w *watcher) check(what, entity, also string) (ran bool) {
	w.Helper()
	defer func() { w.seen = nil }()
	if len(w.seen) == 0 {
		return false
	}
	require.Len(w, w.seen, 1, "%.100q", what)
	seen := w.seen[0]
	require.Len(w, seen.keys, 1, "%.100q", what)
	assert.Contains(w, keysOf(entity, also), seen.keys[0], "%.100q", what)
	plain, _ := url.PathUnescape(seen.id)
	assert.Contains(w, keysOf(seen.id, plain), seen.keys[0], "%.100q is %.100q to the handler", what, seen.id)
	return true
}

// keysOf returns the keys of those texts that name an entity.
func keysOf(texts ...string) (keys []namespace.Key) {
	for _, text := range texts {
		if key, err := Agents.Text(text); err == nil {
			keys = append(keys, key)
		}
	}
	return keys
}
