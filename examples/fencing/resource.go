package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/examples/internal/demokit"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/postgres"
)

// A resource is protected by leases. A write that it refuses returns errRefused.
type resource interface {
	write(ctx context.Context, c lease.Claim, text string) error
	read(ctx context.Context) (string, error)
}

var errRefused = errors.New("refused")

// A webResource is a document at a URL.
type webResource struct{ url string }

func (w webResource) write(ctx context.Context, c lease.Claim, text string) error {
	answer := demokit.Do(ctx, http.MethodPut, w.url, text, tokenHeader+": "+strconv.FormatUint(c.Token, 10))
	switch status := http.StatusText(answer.Status); {
	case answer.Err != nil:
		return answer.Err
	case answer.Status == http.StatusPreconditionFailed:
		return fmt.Errorf("%w: %d %s: %s", errRefused, answer.Status, status, strings.TrimSpace(answer.Body))
	case answer.Status >= http.StatusBadRequest:
		return fmt.Errorf("%d %s: %s", answer.Status, status, strings.TrimSpace(answer.Body))
	}
	return nil
}

func (w webResource) read(ctx context.Context) (text string, err error) {
	demokit.Do(ctx, http.MethodGet, w.url, nil).Decode(&text)
	return text, nil
}

// tokenHeader carries the fencing token of a write.
const tokenHeader = "Fencing-Token"

// A document is a resource behind HTTP that knows nothing of leases. For fencing it only has
// to remember the highest token and refuse lower ones.
type document struct {
	fencing bool

	mu       sync.Mutex
	text     string
	lastSeen uint64
}

// ServeHTTP answers PUT with a token, and GET.
func (d *document) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	d.mu.Lock() // makes compare and write one step
	defer d.mu.Unlock()
	if r.Method != http.MethodPut {
		_, _ = io.WriteString(w, d.text)
		return
	}
	token, err := strconv.ParseUint(r.Header.Get(tokenHeader), 10, 64)
	if err != nil {
		http.Error(w, tokenHeader+" is missing", http.StatusPreconditionRequired)
		return
	}
	if d.fencing && token < d.lastSeen {
		http.Error(w, fmt.Sprintf("token %d: a write with %d has been seen", token, d.lastSeen), http.StatusPreconditionFailed)
		return
	}
	d.lastSeen, d.text = max(d.lastSeen, token), string(text)
	w.WriteHeader(http.StatusNoContent)
}

// The names of a tableResource.
const (
	row        = "row"
	guardedRow = "guarded row"
)

// A tableResource is a row in the database of the leases.
type tableResource struct {
	pool *pgxpool.Pool
	name string
}

const schema = `CREATE TABLE document (one bool PRIMARY KEY DEFAULT true, text text NOT NULL); INSERT INTO document (text) VALUES ('')`

func (t tableResource) write(ctx context.Context, c lease.Claim, text string) error {
	err := pgx.BeginFunc(ctx, t.pool, func(tx pgx.Tx) error {
		if t.name == guardedRow {
			if err := postgres.Guard(ctx, tx, c); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, "UPDATE document SET text = $1", text)
		return err
	})
	if errors.Is(err, lease.ErrStale) || errors.Is(err, lease.ErrExpired) {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	return err
}

func (t tableResource) read(ctx context.Context) (text string, err error) {
	err = t.pool.QueryRow(ctx, "SELECT text FROM document").Scan(&text)
	return text, err
}
