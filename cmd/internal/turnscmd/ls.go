package turnscmd

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/turns"
)

// A choice is which entities ls shows.
type choice struct {
	waiting, running, dead bool
	limit                  int
}

func newLs(app *program.App) *cobra.Command {
	var c choice
	cmd := &cobra.Command{
		Use:        "ls [MAILBOX]",
		Short:      "List mailboxes, and entities whose messages wait, run or are dead",
		SuggestFor: []string{"list", "status"},
		Long: `List the mailboxes of the database with their counts, and the entities that have messages or a
turn. Running entities come first, then those that a dead letter stopped, those that are ready,
and those that pause. Within each state, the entity that has been in it longest comes first.

MESSAGES counts waiting messages, including those of the running turn. ATTEMPTS counts the
latest attempts in a row without a commit. FOR is the time since the claim, or since the
entity became ready; "in 3s" is the time until its pause ends.

Exit codes: 0 there is a mailbox, 3 there is no such mailbox, or no mailbox at all.`,
		Example: `  pglatch turns ls
  pglatch turns ls chat --waiting
  pglatch turns ls chat --dead -o jsonl`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := program.AtLeastOne("limit", c.limit); err != nil {
				return err
			}
			return with(cmd.Context(), app, func(p *post) error {
				if len(args) > 0 {
					name, err := p.named(args[0])
					if err != nil {
						return err
					}
					p.names = []turns.Name{name}
				}
				return p.ls(cmd.Context(), app, c)
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&c.waiting, "waiting", false, "only entities whose messages wait: ready, paused or stopped")
	f.BoolVar(&c.running, "running", false, "only entities with a turn")
	f.BoolVar(&c.dead, "dead", false, "dead letters instead of entities")
	f.IntVar(&c.limit, "limit", 50, "maximum number of entities in each state, and of dead letters, for each mailbox")
	cmd.MarkFlagsMutuallyExclusive("waiting", "running", "dead")
	complete(app, cmd, mailboxes)
	return cmd
}

// states are the states to show, in order.
func (c choice) states() []turns.EntityState {
	waiting := []turns.EntityState{turns.EntityStopped, turns.EntityReady, turns.EntityPaused}
	switch {
	case c.dead:
		return nil
	case c.running:
		return []turns.EntityState{turns.EntityRunning}
	case c.waiting:
		return waiting
	}
	return append([]turns.EntityState{turns.EntityRunning}, waiting...)
}

func (p *post) ls(ctx context.Context, app *program.App, c choice) error {
	if len(p.names) == 0 {
		return &program.ExitError{Code: program.ExitFree, Err: fmt.Errorf("%s has no mailbox: Mailbox.Migrate or Mailbox.Serve makes one", p.place)}
	}
	l := listing{Mailboxes: []mailbox{}, Entities: []entity{}, DeadLetters: []letter{}, dead: c.dead}
	for _, name := range p.names {
		box, err := p.open(ctx, name)
		if err != nil {
			return err
		}
		stats, err := box.Stats(ctx)
		if err != nil {
			return p.fail(ctx, err)
		}
		l.Mailboxes = append(l.Mailboxes, newMailbox(name, stats))
		for _, state := range c.states() {
			all, err := box.Entities(ctx, state, c.limit)
			if err != nil {
				return p.fail(ctx, err)
			}
			for _, e := range all {
				l.Entities = append(l.Entities, newEntity(name, e))
			}
		}
		if !c.dead {
			continue
		}
		letters, err := box.DeadLetters(ctx, namespace.Key{}, 0, c.limit)
		if err != nil {
			return p.fail(ctx, err)
		}
		for _, d := range letters {
			l.DeadLetters = append(l.DeadLetters, newLetter(name, d))
		}
	}
	return app.Print(l.output(app))
}

// A listing is the output of ls.
type listing struct {
	Mailboxes   []mailbox `json:"mailboxes"`
	Entities    []entity  `json:"entities"`
	DeadLetters []letter  `json:"dead_letters"`

	dead bool
}

func (l listing) output(app *program.App) program.Output {
	lines := program.Lines(l.Entities)
	if l.dead {
		lines = program.Lines(l.DeadLetters)
	}
	return program.Output{Document: l, Lines: lines, Text: func(w *bytes.Buffer) {
		t := app.NewTable("MAILBOX", "NAMESPACE", "READY", "RUNNING", "STOPPED", "DEAD", "NODES", "OLDEST")
		for _, m := range l.Mailboxes {
			color := ""
			if m.Stopped > 0 || m.Nodes == 0 && m.Ready > 0 {
				color = program.Red
			}
			t.Add(color, m.Name, m.Namespace, fmt.Sprint(m.Ready), fmt.Sprint(m.Running), fmt.Sprint(m.Stopped), fmt.Sprint(m.Dead), fmt.Sprint(m.Nodes), ageText(m.OldestReady))
		}
		t.WriteTo(w)
		fmt.Fprintln(w)
		several := len(l.Mailboxes) > 1
		if l.dead {
			writeLetters(app, w, l.DeadLetters, several)
			return
		}
		writeEntities(app, w, l.Entities, several)
	}}
}

// A mailbox has the counts of one mailbox.
type mailbox struct {
	Name        string  `json:"name"`
	Namespace   string  `json:"namespace"`
	Ready       int64   `json:"ready"`
	Running     int64   `json:"running"`
	Stopped     int64   `json:"stopped"`
	Dead        int64   `json:"dead"`
	Nodes       int64   `json:"nodes"`
	OldestReady float64 `json:"oldest_ready_seconds"`
}

func newMailbox(n turns.Name, s turns.Stats) mailbox {
	return mailbox{n.Name, n.Namespace.String(), s.Ready, s.Running, s.Stopped, s.Dead, s.Nodes, s.OldestReady.Seconds()}
}

// An entity is one that has messages or a turn.
type entity struct {
	Mailbox     string     `json:"mailbox"`
	Key         string     `json:"key"`
	State       string     `json:"state"`
	Messages    int64      `json:"messages"`
	Attempts    int        `json:"attempts"`
	Since       *time.Time `json:"since,omitempty"` // none = it is idle
	AgeSeconds  float64    `json:"age_seconds"`
	Oldest      float64    `json:"oldest_message_seconds"`
	Node        string     `json:"node,omitempty"`
	LastError   string     `json:"last_error,omitempty"`
	Interrupted string     `json:"interrupted,omitempty"`
}

func newEntity(n turns.Name, e turns.Entity) entity {
	x := entity{
		Mailbox: n.Name, Key: n.Namespace.Name() + "/" + e.Entity, State: string(e.State), Messages: e.Messages, Attempts: e.Attempts,
		AgeSeconds: e.Age.Seconds(), Oldest: e.Oldest.Seconds(), Node: e.Node, LastError: e.LastError, Interrupted: e.Interrupted,
	}
	if !e.Since.IsZero() {
		since := e.Since.UTC()
		x.Since = &since
	}
	return x
}

// color is that of the entity's row.
func (e entity) color() string {
	switch {
	case e.State == string(turns.EntityStopped):
		return program.Red
	case e.Attempts > 1:
		return program.Yellow
	}
	return ""
}

// writeEntities writes a table of entities, with their mailboxes if they can be of several.
func writeEntities(app *program.App, w *bytes.Buffer, all []entity, several bool) {
	t := app.NewTable(inMailbox(several, "MAILBOX", "KEY", "STATE", "MESSAGES", "ATTEMPTS", "FOR", "NODE", "LAST ERROR")...)
	for _, e := range all {
		t.Add(e.color(), inMailbox(several, e.Mailbox, e.Key, e.State, fmt.Sprint(e.Messages), fmt.Sprint(e.Attempts), ageText(e.AgeSeconds), cmp.Or(e.Node, "-"), cmp.Or(e.LastError, "-"))...)
	}
	t.WriteTo(w)
}

// A letter is a dead letter.
type letter struct {
	Mailbox  string    `json:"mailbox"`
	Number   int64     `json:"number"`
	Key      string    `json:"key"`
	ID       string    `json:"id,omitempty"`
	Bytes    int       `json:"bytes"`
	Attempts int       `json:"attempts"`
	SentAt   time.Time `json:"sent_at"`
	DiedAt   time.Time `json:"died_at"`
	Error    string    `json:"error"`
}

func newLetter(n turns.Name, d turns.DeadLetter) letter {
	return letter{
		n.Name, d.Message.Number, n.Namespace.Name() + "/" + d.Entity, d.Message.ID, len(d.Message.Body), d.Attempts,
		d.Message.SentAt.UTC(), d.DiedAt.UTC(), d.Error,
	}
}

// writeLetters writes a table of dead letters, with their mailboxes if they can be of several.
func writeLetters(app *program.App, w *bytes.Buffer, all []letter, several bool) {
	t := app.NewTable(inMailbox(several, "MAILBOX", "NUMBER", "KEY", "ID", "BYTES", "ATTEMPTS", "DIED AT", "ERROR")...)
	for _, d := range all {
		t.Add("", inMailbox(several, d.Mailbox, fmt.Sprint(d.Number), d.Key, cmp.Or(d.ID, "-"), fmt.Sprint(d.Bytes), fmt.Sprint(d.Attempts), d.DiedAt.Format(time.RFC3339), d.Error)...)
	}
	t.WriteTo(w)
}

// inMailbox returns the cells of a row, whose first one is left out unless there are several mailboxes.
func inMailbox(several bool, cells ...string) []string {
	if several {
		return cells
	}
	return cells[1:]
}

// ageText is a time in seconds for people; one that comes begins with "in".
func ageText(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d == 0:
		return "-"
	case d < 0:
		return "in " + (-d).Round(100*time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
