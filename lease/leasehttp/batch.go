package leasehttp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"runtime"
	"time"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/internal/problem"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
)

// fly sends a batch and delivers its answers. It ends when all callers have left.
func (l *line) fly(f *flight, group []*sending) {
	defer l.land(f)
	callers := make([]context.Context, 0, len(group))
	var timeout time.Duration
	for _, s := range group {
		callers, timeout = append(callers, s.ctx), max(timeout, s.timeout)
	}
	ctx, cancel := background.WhileAny(context.Background(), callers)
	defer cancel()
	a, err := l.server.send(ctx, http.MethodPost, "/v1/batch", batchOf(group), timeout)
	switch {
	case err != nil:
		deliver(group, turn{err: err})
	case a.status != http.StatusOK:
		deliver(group, l.refused(a))
	default:
		l.answer(group, a)
	}
	for i := 0; i < gatherTurns && l.length() < len(group); i++ {
		runtime.Gosched()
	}
}

// batchOf returns the body of a batch, which has the bodies of the plain requests.
func batchOf(group []*sending) []byte {
	var b bytes.Buffer
	b.WriteString(`{"operations":[`)
	separator := ""
	for _, s := range group {
		b.WriteString(separator + `{"` + s.call.verb + `":{"lock":`)
		b.Write(s.lock)
		b.WriteByte(',')
		b.Write(s.data[1:]) // it has an owner_id
		b.WriteByte('}')
		separator = ","
	}
	b.WriteString(`]}`)
	return b.Bytes()
}

// refused returns the turn of all sendings of a batch whose answer is not a list of results. A
// server that does not take batches, such as one of an earlier version, gets plain requests for a
// while.
func (l *line) refused(a answer) turn {
	p := new(wire.Problem)
	media, _, _ := mime.ParseMediaType(a.contentType)
	if media != problem.MediaType || json.Unmarshal(a.body, p) != nil {
		p.Type = ""
	}
	sentinel := wire.KindOfType(p.Type).Sentinel
	undone := sentinel != nil && (errors.Is(sentinel, lease.ErrInvalid) || errors.Is(sentinel, ErrDenied))
	if undone || sentinel == nil && (p.Type == wire.TypeInternal || a.status < http.StatusInternalServerError) {
		until := lease.Now().Add(plainFor)
		l.mu.Lock()
		l.plain = &until
		l.mu.Unlock()
	}
	if undone {
		return turn{alone: true}
	}
	return turn{answer: a}
}

func deliver(group []*sending, t turn) {
	for _, s := range group {
		s.turn <- t
	}
}

// answer delivers the results of a batch.
func (l *line) answer(group []*sending, a answer) {
	var body wire.RawBatchedBody
	err := json.Unmarshal(a.body, &body)
	if err == nil && len(body.Results) != len(group) {
		err = errMixedUp
	}
	if err != nil {
		deliver(group, turn{err: err})
		return
	}
	for i, s := range group {
		t := turn{alone: goesAlone(s.call, body.Results[i])}
		if !t.alone {
			t.answer, t.err = answerOf(s.call, body.Results[i])
			t.answer.sent = a.sent
		}
		s.turn <- t
	}
}

// goesAlone reports whether nothing was done, and the operation, if it is sent alone, can wait for
// what is in its way: a holder, or something that delays the store, such as a locked row.
func goesAlone(k *call, r wire.RawBatchResult) bool {
	kind := wire.TypeBusy
	switch {
	case r.Status == http.StatusConflict && k.wait() > 0:
		kind = wire.TypeHeld
	case r.Status != http.StatusServiceUnavailable:
		return false
	}
	p := new(wire.Problem)
	return json.Unmarshal(r.Problem, p) == nil && p.Type == kind
}

// answerOf returns the answer that a plain request would have got.
func answerOf(k *call, r wire.RawBatchResult) (answer, error) {
	done := r.Lease
	if k.verb == verbRelease {
		done = r.Released
	}
	switch {
	case r.Status == http.StatusOK && done != nil:
		return answer{status: r.Status, contentType: wire.JSONType, body: done}, nil
	case r.Status != http.StatusOK && r.Problem != nil:
		return answer{status: r.Status, contentType: problem.MediaType, body: r.Problem}, nil
	}
	return answer{}, errMixedUp
}
