package cli

import (
	"encoding/json"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
)

// redacted stands for a password.
const redacted = "xxxxx"

// A redactor takes passwords out of messages. Each Write is one message.
type redactor struct {
	to io.Writer

	mu       sync.Mutex
	replacer *strings.Replacer // nil = nothing to hide yet
}

// hide makes the redactor hide the database URL and its password in all the
// spellings in which messages quote them.
func (r *redactor) hide(cc *pgx.ConnConfig, text string) {
	var secrets []string
	add := func(secret string) {
		if secret != "" && !slices.Contains(secrets, secret) {
			secrets = append(secrets, secret)
		}
	}
	// A password that is also a name is not hidden: to blot the name out would give it away.
	if p := cc.Password; p != cc.User && p != cc.Database && p != cc.Host {
		for _, s := range []string{url.QueryEscape(p), url.PathEscape(p), url.User(p).String(), p} {
			add(quoted(s))
			add(inJSON(s))
			add(s)
		}
	}
	add(quoted(text))
	add(text)
	// The replacer takes the first that matches: the whole before its parts.
	slices.SortStableFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	pairs := make([]string, 0, 2*len(secrets))
	for _, s := range secrets {
		pairs = append(pairs, s, redacted)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.replacer = strings.NewReplacer(pairs...)
}

// Write writes a message without passwords.
func (r *redactor) Write(message []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := string(message)
	if r.replacer != nil {
		text = r.replacer.Replace(text)
	}
	if _, err := io.WriteString(r.to, text); err != nil {
		return 0, err
	}
	return len(message), nil
}

func quoted(s string) string {
	q := strconv.Quote(s)
	return q[1 : len(q)-1]
}

func inJSON(s string) string {
	q, err := json.Marshal(s)
	if err != nil {
		return s
	}
	return string(q[1 : len(q)-1])
}
