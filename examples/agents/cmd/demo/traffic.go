package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/pglatch/pglatch/examples/agents"
	"github.com/pglatch/pglatch/examples/internal/demokit"
	"github.com/pglatch/pglatch/middleware"
)

// An answer is the response to a request.
type answer struct {
	status     int
	retryAfter time.Duration
	body       string
	took       time.Duration
	err        error
}

// problem decodes the body of a refusal.
func (x answer) problem() (p middleware.ProblemError) {
	_ = json.Unmarshal([]byte(x.body), &p) // on an error the claims about it fail
	return p
}

// An agent is an agent that the demo plays.
type agent struct {
	id      int32
	session string
}

// newAgent starts a session at a replica.
func (d *demo) newAgent(ctx context.Context, at *replica, session string) (agent, error) {
	x := d.post(ctx, at, "session-start", agents.Hook{SessionID: session})
	if x.err != nil || x.status != http.StatusOK {
		return agent{}, fmt.Errorf("session-start of %s at %s: %d %s %w", session, at.Name, x.status, x.body, x.err)
	}
	var reply agents.HookReply
	if err := json.Unmarshal([]byte(x.body), &reply); err != nil {
		return agent{}, err
	}
	return agent{reply.AgentID, session}, nil
}

// post calls a hook and waits for the answer.
func (d *demo) post(ctx context.Context, at *replica, hook string, body agents.Hook) answer {
	text, err := json.Marshal(body)
	if err != nil {
		return answer{err: err}
	}
	return d.do(ctx, http.MethodPost, at.URL+"/hook/"+hook, text)
}

// send calls a hook and returns a channel that receives the answer.
func (d *demo) send(ctx context.Context, at *replica, hook string, body agents.Hook) <-chan answer {
	c := make(chan answer, 1)
	go func() { c <- d.post(ctx, at, hook, body) }()
	return c
}

func (d *demo) do(ctx context.Context, method, url string, body []byte) (x answer) {
	start := time.Now()
	defer func() { x.took = time.Since(start) }()
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := d.client.Do(request)
	if err != nil {
		return answer{err: err}
	}
	defer response.Body.Close() //nolint:errcheck // only read from
	text, err := io.ReadAll(response.Body)
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After")) // 0 without the header
	return answer{status: response.StatusCode, retryAfter: time.Duration(seconds) * time.Second, body: string(text), err: err}
}

// problem prints the relevant parts of a refusal.
func (d *demo) problem(x answer) {
	p := x.problem()
	text := fmt.Sprintf("%s: %s", p.Title, p.Detail)
	if p.Holder != nil {
		text += fmt.Sprintf(" Holder: %s, session %d.", p.Holder.ApplicationName, p.Holder.PID)
	}
	if x.retryAfter > 0 {
		text += fmt.Sprintf(" Retry-After: %s.", x.retryAfter)
	}
	d.Draw(d.Paint(demokit.Faint, text))
}
