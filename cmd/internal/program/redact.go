package program

import (
	"encoding/json"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

// redacted replaces a password.
const redacted = "xxxxx"

// minSecret is the shortest password to search for in messages: a shorter one is part of too many
// words.
const minSecret = 4

// A redactor removes passwords from messages, which should contain none. Each Write is one message.
type redactor struct {
	to io.Writer

	mu      sync.Mutex
	secrets []string // the longest first
}

// hide makes the redactor hide the database URL and its password in all spellings that messages
// use.
func (r *redactor) hide(cc *pgx.ConnConfig, text string) {
	var secrets []string
	add := func(secret string) {
		if len(secret) >= minSecret && !slices.Contains(secrets, secret) {
			secrets = append(secrets, secret)
		}
	}
	// A password that is also a name is not hidden: hiding the name would reveal the password.
	if p := cc.Password; p != cc.User && p != cc.Database && p != cc.Host {
		for _, s := range []string{url.QueryEscape(p), url.PathEscape(p), url.User(p).String(), p} {
			add(quoted(s))
			add(inJSON(s))
			add(s)
		}
	}
	add(quoted(text))
	add(text)
	// The whole is replaced before its parts.
	slices.SortStableFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	r.mu.Lock()
	defer r.mu.Unlock()
	r.secrets = secrets
}

// Write writes a message without passwords.
func (r *redactor) Write(message []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := string(message)
	for _, secret := range r.secrets {
		text = replaceWord(text, secret)
	}
	if _, err := io.WriteString(r.to, text); err != nil {
		return 0, err
	}
	return len(message), nil
}

// replaceWord replaces a secret where it is a separate word: a password "latch" leaves pglatch
// unchanged.
func replaceWord(text, secret string) string {
	var b strings.Builder
	last := rune(0)
	for text != "" {
		r, size := utf8.DecodeRuneInString(text)
		after, found := strings.CutPrefix(text, secret)
		next, _ := utf8.DecodeRuneInString(after)
		if found && !isWord(last) && !isWord(next) {
			b.WriteString(redacted)
			text, last = after, 0
			continue
		}
		b.WriteString(text[:size])
		text, last = text[size:], r
	}
	return b.String()
}

func isWord(r rune) bool {
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r))
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
