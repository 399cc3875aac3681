package agents

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A Model writes a summary of a text.
type Model func(ctx context.Context, text string) (summary string, err error)

// firstWords is a Model that costs nothing: the summary is the first words.
func firstWords(_ context.Context, text string) (string, error) {
	words := strings.Fields(text)
	return strings.Join(words[:min(len(words), 8)], " "), nil
}

// A Summariser writes the summary of each turn, once.
type Summariser struct {
	pool  *pgxpool.Pool
	model Model
	limit *RateLimiter // of model calls
	cache *InferenceCache
}

// NewSummariser returns a Summariser that calls the model at most once a second on average,
// with bursts of up to 60.
func NewSummariser(pool *pgxpool.Pool, model Model) *Summariser {
	return &Summariser{pool: pool, model: model, limit: NewRateLimiter(60, time.Second), cache: NewInferenceCache()}
}

// lockNotAvailable is SQLSTATE 55P03: NOWAIT fails with it instead of waiting.
const lockNotAvailable = "55P03"

var errTurnBusy = errors.New("somebody else has locked the turn")

// Summarise returns the turn's summary, and writes it if there is none. If another session is
// writing it or the rate limit is reached, ok is false and the model is not called. The row
// is locked during the call: model calls are expensive, and nothing else wants to change a
// turn.
func (s *Summariser) Summarise(ctx context.Context, turn int64) (summary string, ok bool, err error) {
	err = inTx(ctx, s.pool, func(tx pgx.Tx) error {
		var text string
		var existing *string
		err := tx.QueryRow(ctx, `SELECT text, summary FROM hooks.turns WHERE id = $1 FOR UPDATE NOWAIT`, turn).Scan(&text, &existing)
		if e, is := errors.AsType[*pgconn.PgError](err); is && e.Code == lockNotAvailable {
			return errTurnBusy // the transaction has failed
		}
		if err != nil {
			return err
		}
		if existing != nil {
			summary, ok = *existing, true
			return nil
		}
		if summary, ok = s.cache.Find(text); !ok {
			if !s.limit.Allow() {
				return nil
			}
			if summary, err = s.model(ctx, text); err != nil {
				return err
			}
			s.cache.Add(text, summary)
			ok = true
		}
		_, err = tx.Exec(ctx, `UPDATE hooks.turns SET summary = $2 WHERE id = $1`, turn, summary)
		return err
	})
	if errors.Is(err, errTurnBusy) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("agents: summarise turn %d: %w", turn, err)
	}
	return summary, ok, nil
}
