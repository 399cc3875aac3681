package turnstest

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// A session speaks PostgreSQL's protocol with one client.
type session struct {
	server   *Server
	conn     net.Conn
	pid      uint32
	ended    chan struct{}
	canceled chan struct{} // has one element if the statement is to end

	out  sync.Mutex
	data []byte
	wake chan struct{}

	// guarded by server.mu
	listening map[string]bool

	// of the goroutine that serves
	tx     *tx // nil = none is open
	failed bool
}

// A failure is an error of the server.
type failure struct{ code, text string }

func (f *failure) Error() string { return f.text }

// A result is the answer to one statement, in text format. nil values are NULL.
type result struct {
	columns string // "entity text, token int8"; "" = none
	rows    [][]any
	tag     string // "" = that of a SELECT
}

// types are the oids of the types of columns.
var types = map[string]uint32{"bool": 16, "bytea": 17, "int8": 20, "int4": 23, "text": 25, "float8": 701, "timestamptz": 1184}

// add adds a row.
func (r *result) add(values ...any) { r.rows = append(r.rows, values) }

// send writes messages without waiting for the client.
func (x *session) send(messages ...pgproto3.BackendMessage) {
	x.out.Lock()
	defer x.out.Unlock()
	for _, m := range messages {
		x.data, _ = m.Encode(x.data) // fails for messages that are too large
	}
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// write carries what was sent until the session ends.
func (x *session) write() {
	for {
		select {
		case <-x.wake:
		case <-x.ended:
			return
		}
		x.out.Lock()
		data := x.data
		x.data = nil
		x.out.Unlock()
		if _, err := x.conn.Write(data); err != nil {
			return
		}
	}
}

// serve answers the client until it closes the connection.
func (x *session) serve() {
	defer x.end()
	backend := pgproto3.NewBackend(x.conn, nil)
	first, err := backend.ReceiveStartupMessage()
	if err != nil {
		return
	}
	if request, ok := first.(*pgproto3.CancelRequest); ok {
		x.server.cancel(request.ProcessID)
		return
	}
	x.server.mu.Lock()
	x.server.lastPID++
	x.pid = x.server.lastPID
	x.server.sessions[x.pid] = x
	x.server.mu.Unlock()
	x.send(
		&pgproto3.AuthenticationOk{},
		&pgproto3.ParameterStatus{Name: "server_version", Value: "18.0"},
		&pgproto3.ParameterStatus{Name: "client_encoding", Value: "UTF8"},
		&pgproto3.ParameterStatus{Name: "standard_conforming_strings", Value: "on"},
		&pgproto3.BackendKeyData{ProcessID: x.pid, SecretKey: []byte{0, 0, 0, 0}},
		x.ready(),
	)
	var sql string
	var args []*string
	skip := false
	for {
		message, err := backend.Receive()
		if err != nil {
			return
		}
		switch m := message.(type) {
		case *pgproto3.Terminate:
			return
		case *pgproto3.Query:
			if strings.TrimSpace(m.String) == "" {
				x.send(&pgproto3.EmptyQueryResponse{})
			} else {
				x.execute(m.String, nil, false)
			}
			x.send(x.ready())
		case *pgproto3.Sync:
			skip = false
			x.send(x.ready())
		case *pgproto3.Parse:
			if !skip {
				sql = m.Query
				x.send(&pgproto3.ParseComplete{})
			}
		case *pgproto3.Bind:
			args = nil
			for _, p := range m.Parameters {
				if p == nil {
					args = append(args, nil)
				} else {
					args = append(args, new(string(p)))
				}
			}
			if !skip {
				x.send(&pgproto3.BindComplete{})
			}
		case *pgproto3.Execute:
			skip = skip || !x.execute(sql, args, true)
		}
	}
}

func (x *session) ready() *pgproto3.ReadyForQuery {
	switch {
	case x.failed:
		return &pgproto3.ReadyForQuery{TxStatus: 'E'}
	case x.tx != nil:
		return &pgproto3.ReadyForQuery{TxStatus: 'T'}
	}
	return &pgproto3.ReadyForQuery{TxStatus: 'I'}
}

// execute runs a statement, and sends its answer.
func (x *session) execute(sql string, args []*string, described bool) bool {
	r, err := x.run(strings.TrimSpace(sql), args)
	if err != nil {
		f := &failure{"XX000", err.Error()}
		if typed, ok := errors.AsType[*failure](err); ok {
			f = typed
		}
		x.failed = x.tx != nil
		x.send(&pgproto3.ErrorResponse{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: f.code, Message: f.text})
		return false
	}
	if r.columns != "" {
		description := &pgproto3.RowDescription{}
		for column := range strings.SplitSeq(r.columns, ", ") {
			name, kind, _ := strings.Cut(column, " ")
			description.Fields = append(description.Fields, pgproto3.FieldDescription{Name: []byte(name), DataTypeOID: types[kind], DataTypeSize: -1, TypeModifier: -1})
		}
		x.send(description)
	} else if described {
		x.send(&pgproto3.NoData{})
	}
	for _, row := range r.rows {
		data := &pgproto3.DataRow{}
		for _, v := range row {
			data.Values = append(data.Values, textOf(v))
		}
		x.send(data)
	}
	x.send(&pgproto3.CommandComplete{CommandTag: []byte(cmp.Or(r.tag, fmt.Sprint("SELECT ", len(r.rows))))})
	return true
}

// textOf writes a value as PostgreSQL does.
func textOf(v any) []byte {
	switch v := v.(type) {
	case nil:
		return nil
	case []byte:
		if v == nil {
			return nil
		}
		return fmt.Appendf(nil, `\x%x`, v)
	case bool:
		return []byte(fmt.Sprint(v)[:1])
	case time.Time:
		return []byte(v.UTC().Format("2006-01-02 15:04:05.999999-07"))
	}
	return fmt.Append([]byte{}, v)
}

// end rolls back what is open.
func (x *session) end() {
	close(x.ended)
	_ = x.conn.Close()
	x.server.mu.Lock()
	defer x.server.mu.Unlock()
	delete(x.server.sessions, x.pid)
	x.finish(false)
}

// cancel ends the statement of a session, if it waits.
func (s *Server) cancel(pid uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.sessions[pid]; x != nil {
		select {
		case x.canceled <- struct{}{}:
		default:
		}
	}
}

func notification(channel, payload string) *pgproto3.NotificationResponse {
	return &pgproto3.NotificationResponse{Channel: channel, Payload: payload}
}
