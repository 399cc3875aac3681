// Command demo shows, with real processes, one turn at a time for each conversation:
//
//	make demo-turns                             # and stay until Ctrl-C
//	go run ./examples/chat/cmd/demo -once       # exit 1 if a claim fails
//	go run ./examples/chat/cmd/demo -once -break # the control: replies are saved beside the turn's commit, and a claim fails
//
// Three replicas of examples/chat are behind one port, on one PostgreSQL. A burst of messages has one answer, a message
// changes an answer that is being written, and a user stops one from another replica. Then a replica is killed with kill
// -9 in the middle of a turn, while twenty users write. At the end only the table decides: each message has one reply, in
// order.
package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/examples/chat"
	"github.com/pglatch/pglatch/examples/internal/demokit"
	"github.com/pglatch/pglatch/internal/test/dbtest"
)

// serve is the main function of a replica.
func serve(ctx context.Context, n *demokit.Node) error {
	service, err := chat.Open(ctx, chat.Config{DSN: n.DSN, Replica: n.Name, Logger: n.Log, Unsafe: n.Broken})
	return n.Run(ctx, service, err)
}

func main() {
	demokit.Main("pglatch: three replicas of a chat service behind one port, one turn at a time for each conversation",
		"replies are saved beside the commit of the turn", serve, tell)
}

// A demo is the state that the scenes share.
type demo struct {
	*demokit.Demo
	url      string                      // the one port
	next     atomic.Uint64               // request
	running  atomic.Pointer[[]*url.URL]  // of the replicas
	replicas map[string]*demokit.Process // running
	sent     int                         // messages so far
}

func tell(_ context.Context, d *demokit.Demo) demokit.Story {
	demokit.Check(d.OpenDatabase())
	s := &demo{Demo: d, replicas: map[string]*demokit.Process{}}
	s.url = d.Serve(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			urls := *s.running.Load()
			r.SetURL(urls[s.next.Add(1)%uint64(len(urls))])
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	})
	scenes := []demokit.Scene{
		{Title: "Three replicas start, behind one port", Play: s.started},
		{Title: "A burst of five messages has one answer", Play: s.burst},
		{Title: "A message changes the answer that is being written", Play: s.steered},
		{Title: "A user stops the answer from another replica", Play: s.stopped},
		{Title: "kill -9 of a replica in the middle of a turn, while 20 users write", Play: s.killed},
		{Title: "What the table shows", Play: s.judged},
	}
	if s.Broken {
		scenes = []demokit.Scene{scenes[0], scenes[4], scenes[5]}
	}
	return demokit.Story{Scenes: scenes, Stay: s.stay}
}

// stay lets the user write.
func (s *demo) stay(ctx context.Context) {
	s.Say(`write: curl -d '{"id": "1", "text": "hello"}' %s/conversations/me; read: curl %s/conversations/me; Ctrl-C ends it`, s.url, s.url)
	<-ctx.Done()
}

func (s *demo) started(context.Context) {
	for _, name := range []string{"A", "B", "C"} {
		s.replicas[name] = s.Start(name)
	}
	s.useAll()
	s.Say("the port is %s", s.url)
}

// useAll passes requests to all replicas that run.
func (s *demo) useAll() {
	var urls []*url.URL
	for _, p := range s.replicas {
		urls = append(urls, demokit.Must(url.Parse(p.URL)))
	}
	s.running.Store(&urls)
}

// post sends a message until a replica has it. The same ID makes it one message.
func post(ctx context.Context, url, conversation, id, text string) (again bool) {
	for ctx.Err() == nil {
		a := demokit.Do(ctx, http.MethodPost, url+"/conversations/"+conversation, map[string]string{"id": id, "text": text})
		if a.Err == nil && a.Status == http.StatusAccepted {
			return strings.Contains(a.Body, `"again":true`)
		}
		demokit.Pause(ctx, 50*time.Millisecond)
	}
	return false
}

// write sends a message through the one port.
func (s *demo) write(ctx context.Context, conversation, text string) {
	s.sent++
	post(ctx, s.url, conversation, fmt.Sprintf("m%d", s.sent), text)
	s.Say("%s: %q", conversation, text)
}

// replies returns the replies of a conversation.
func (s *demo) replies(ctx context.Context, conversation string) (replies []chat.Reply) {
	demokit.Do(ctx, http.MethodGet, s.url+"/conversations/"+conversation, nil).Decode(&replies)
	return replies
}

// await waits for the first reply of a conversation, and shows all.
func (s *demo) await(ctx context.Context, conversation string) (replies []chat.Reply) {
	s.Await("a reply in "+conversation, func() bool {
		replies = s.replies(ctx, conversation)
		return len(replies) > 0 && !s.open(conversation)
	})
	for _, r := range replies {
		s.Draw(demokit.Cyan, fmt.Sprintf("%s: %s", r.Replica, r.Text))
	}
	return replies
}

// open reports whether a conversation has a message without a reply.
func (s *demo) open(conversation string) bool {
	return dbtest.Ask[bool](s, `SELECT EXISTS (SELECT FROM pglatch_turns.messages WHERE entity = $1)`, conversation)
}

// thinking waits for the replica that runs the turn of a conversation.
func (s *demo) thinking(conversation string, attempt int) (runs *demokit.Process) {
	s.Await("the turn of "+conversation, func() bool {
		for _, p := range s.replicas {
			if len(p.Entries(0, chat.LogThinking, "conversation="+conversation, fmt.Sprintf("attempt=%d", attempt))) > 0 {
				runs = p
			}
		}
		return runs != nil
	})
	s.Say("replica %s thinks", runs.Name)
	return runs
}

// burst holds the mutex of the conversation while the messages come, so that they all wait when the turn begins.
func (s *demo) burst(ctx context.Context) {
	locker := demokit.Must(advisory.Open(ctx, advisory.Config{DSN: s.DSN}))
	defer locker.Close()
	lock := demokit.Must(locker.Acquire(ctx, demokit.Must(chat.Conversations.Text("burst"))))
	s.Say("another program has the lock of the conversation: its turn waits")
	for _, text := range []string{"hi", "are you there?", "I need a flight", "to Rome", "tomorrow"} {
		s.write(ctx, "burst", text)
	}
	s.Claim(len(s.replies(ctx, "burst")) == 0, "nothing is answered while the lock is held")
	demokit.Check(lock.Release())
	replies := s.await(ctx, "burst")
	s.Claim(len(replies) == 1 && len(replies[0].Messages) == 5, "five messages have one answer, and it has them in order")
	s.Claim(post(ctx, s.url, "burst", "m1", "hi") && !s.open("burst"), "a message that comes again is recognized by its ID")
}

func (s *demo) steered(ctx context.Context) {
	s.write(ctx, "steer", "think about a flight to Rome")
	s.thinking("steer", 1)
	s.write(ctx, "steer", "no, to Oslo")
	replies := s.await(ctx, "steer")
	s.Claim(len(replies) == 1 && len(replies[0].Messages) == 2 && strings.Contains(replies[0].Text, "Oslo"), "the answer has both, in one turn")
}

func (s *demo) stopped(ctx context.Context) {
	s.write(ctx, "stop", "think about everything")
	runs := s.thinking("stop", 1)
	var other *demokit.Process
	for name, p := range s.replicas {
		if name != runs.Name {
			other = p
		}
	}
	s.Say("stop, by replica %s", other.Name)
	s.Claim(stop(ctx, other, "stop") == http.StatusOK, "replica %s accepts the stop of a turn that it does not run", other.Name)
	replies := s.await(ctx, "stop")
	s.Claim(len(replies) == 1 && strings.HasPrefix(replies[0].Text, "[stopped]") && replies[0].Replica == runs.Name,
		"replica %s saved what it had, and the conversation goes on", runs.Name)
	s.Claim(stop(ctx, other, "stop") == http.StatusConflict, "a stop when nothing runs is refused, and does not hit the next turn")
}

// stop asks a replica to stop the answer that is being written in a conversation, and returns the status.
func stop(ctx context.Context, replica *demokit.Process, conversation string) int {
	return replica.Do(ctx, http.MethodDelete, "/conversations/"+conversation+"/turn", nil).Status
}

// killed kills a replica that is in the middle of a turn.
func (s *demo) killed(ctx context.Context) {
	const users, messages = 20, 5
	s.write(ctx, "kill", "think about a train to Paris")
	victim := s.thinking("kill", 1)
	var writing sync.WaitGroup
	for user := range users {
		writing.Go(func() {
			for i := range messages {
				post(ctx, s.url, fmt.Sprintf("user%d", user), fmt.Sprintf("u%d", i), "hello")
			}
		})
	}
	s.sent += users * messages
	s.AwaitTrue("the first replies to users", `SELECT count(*) > 0 FROM replies WHERE conversation LIKE 'user%'`)
	victim.Kill()
	s.Say("kill -9 of replica %s", victim.Name)
	delete(s.replicas, victim.Name)
	writing.Wait() // requests to the dead replica failed, and were sent again
	s.useAll()
	heir := s.thinking("kill", 2)
	s.Claim(heir.Name != victim.Name, "replica %s has the turn, as its second attempt", heir.Name)
	if s.Broken {
		s.Claim(stop(ctx, heir, "kill") == http.StatusOK, "the user stops replica %s", heir.Name)
	} else {
		s.write(ctx, "kill", "and a hotel")
	}
	s.await(ctx, "kill")
	s.AwaitTrue("all replies", `SELECT count(*) = 0 FROM pglatch_turns.messages`)
	s.Say("all %d messages were taken", s.sent)
}

// judged claims the results from the table alone.
func (s *demo) judged(context.Context) {
	const handled = `SELECT conversation, id, number, n, place FROM replies, unnest(ids, numbers) WITH ORDINALITY AS m (id, number, place)`
	count := func(sql string) int { return dbtest.Ask[int](s, `WITH handled AS (`+handled+`) `+sql) }
	distinct := count(`SELECT count(DISTINCT (conversation, id)) FROM handled`)
	s.Claim(distinct == s.sent, "nothing is lost: %d messages were sent, and %d have a reply", s.sent, distinct)
	all := count(`SELECT count(*) FROM handled`)
	s.ClaimNone(all-distinct, "no message has two replies")
	late := count(`SELECT count(*) FROM (SELECT number < lag(number) OVER (PARTITION BY conversation ORDER BY n, place) AS late FROM handled) AS h WHERE late`)
	s.ClaimNone(late, "each conversation is in the order in which its messages were sent")
}
