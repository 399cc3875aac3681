package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/lease"
)

const (
	longestMessage = 1 << 10
	sendSize       = 64 << 10 // bytes of messages in one put, which makes one event: etcd allows 1.5 MB
	// listenProbe is how often a listener reads the last put. It detects within two probes that it
	// does not receive the puts.
	listenProbe = 5 * time.Second
)

var errDeaf = errors.New("what was sent is not heard")

// messageKey returns the key with the messages of the last put. Listeners watch it, and receive
// each put.
func (s *Store) messageKey() string { return s.config.Prefix + separator + "messages" }

// Send implements [lease.Messenger] by one put, or several if there are many messages. After an
// error some may have been sent.
func (s *Store) Send(ctx context.Context, messages []string) error {
	if s.closing.Err() != nil {
		return errClosed
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	size, first := 0, 0
	for i, m := range messages {
		if len(m) > longestMessage {
			return &lease.InvalidError{Field: "messages", Value: strconv.Itoa(len(m)) + " bytes", Remedy: fmt.Sprintf("use at most %d in each", longestMessage)}
		}
		if size += len(m); size > sendSize {
			if err := s.put(ctx, messages[first:i]); err != nil {
				return err
			}
			first, size = i, len(m)
		}
	}
	return s.put(ctx, messages[first:])
}

func (s *Store) put(ctx context.Context, messages []string) error {
	if len(messages) == 0 {
		return nil
	}
	text, err := json.Marshal(messages)
	if err != nil {
		return err
	}
	if _, err = s.client.Put(ctx, s.messageKey(), string(text)); err != nil {
		return failed(ctx, err)
	}
	return nil
}

// Listen implements [lease.Messenger] by a watch, which delivers the puts in the order of their
// revisions. If its connection ends, it continues at another member where it stopped. Listen ends
// if etcd cannot do that, as after a compaction. It also ends if no majority answers within
// Config.Timeout, if the cluster was replaced, or if a put is not received within ten seconds.
func (s *Store) Listen(ctx context.Context, ready func(), receive func(message string)) error {
	if s.closing.Err() != nil {
		return errClosed
	}
	ctx, cancel := context.WithCancelCause(clientv3.WithRequireLeader(ctx))
	var probe sync.WaitGroup
	defer probe.Wait()
	defer cancel(nil)
	defer context.AfterFunc(s.closing, func() { cancel(errClosed) })()

	last, err := s.lastSent(ctx)
	if err != nil {
		return listening(ctx, err)
	}
	var heard atomic.Int64
	probe.Go(func() { cancel(s.probe(ctx, last.Header.ClusterId, &heard)) })
	for r := range s.client.Watch(ctx, s.messageKey(), clientv3.WithRev(last.Header.Revision+1), clientv3.WithCreatedNotify()) {
		if err := r.Err(); err != nil {
			return listening(ctx, err)
		}
		if r.Created {
			heard.Store(last.Header.Revision)
			ready()
		}
		for _, e := range r.Events {
			var messages []string
			_ = json.Unmarshal(e.Kv.Value, &messages) // other data is ignored
			for _, m := range messages {
				receive(m)
			}
			heard.Store(e.Kv.ModRevision)
		}
	}
	return listening(ctx, errors.New("the watch ended"))
}

func (s *Store) lastSent(ctx context.Context) (*clientv3.GetResponse, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	r, err := s.client.Get(ctx, s.messageKey(), clientv3.WithKeysOnly())
	return r, undone(ctx, err)
}

// probe returns why the watch is no longer useful. heard is the revision of its last event, 0
// before it has begun.
func (s *Store) probe(ctx context.Context, cluster uint64, heard *atomic.Int64) error {
	for due := int64(1); ; {
		if err := pause.For(ctx, listenProbe); err != nil {
			return err
		}
		before := heard.Load()
		r, err := s.lastSent(ctx)
		switch {
		case err != nil:
			return listening(ctx, err)
		case before < due:
			return listening(ctx, errDeaf)
		case r.Header.ClusterId != cluster || r.Header.Revision < before:
			return listening(ctx, errHistory)
		}
		for _, kv := range r.Kvs {
			due = max(due, kv.ModRevision)
		}
	}
}

// listening returns the error that ends Listen.
func listening(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if e := denied(err); e != nil && !errors.Is(err, ErrDenied) {
		return e
	}
	return fmt.Errorf("lease/etcd: listening: %w", err)
}
