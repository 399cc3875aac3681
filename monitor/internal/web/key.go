package web

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/incident"
	"github.com/pglatch/pglatch/namespace"
)

// waitersShown is how many waiters of a key its page lists.
const waitersShown = 200

// A keyView is the page of one key.
type keyView struct {
	incident.Key

	Command  string // the key as an argument of commands and actions; "" = it is not shown
	Gone     bool
	Holders  []holderView
	Waiters  []waiterView // the first of them
	Verdicts []card
	SQL      []string
	Steps    []step
}

type holderView struct {
	*incident.Holder

	Since age
}

type waiterView struct {
	*incident.Waiter

	Place int
	Since age
	Left  string
	Holds []string
}

// A step is a possible action.
type step struct{ Text, Command string }

// key is the page of one key.
func key(_ context.Context, v *view, asked url.Values) {
	id := asked.Get("id")
	v.Parts = []string{"key"}
	v.Title = "Key"
	for _, k := range v.state.Picture.Keys {
		if k.ID == id {
			v.Title = k.Text
			v.Key = v.keyOf(k)
			return
		}
	}
	v.Key = &keyView{Gone: true, Key: incident.Key{Text: "This key"}}
	for i := len(v.state.Past.Events) - 1; i >= 0; i-- {
		if e := &v.state.Past.Events[i]; e.KeyID == id {
			v.Key.Text = e.Key
			break
		}
	}
}

func (v *view) keyOf(k *incident.Key) *keyView {
	kv := &keyView{Key: *k}
	for i, c := range v.Verdicts {
		if v.state.Verdicts[i].Of(k.ID) {
			kv.Verdicts = append(kv.Verdicts, c)
		}
	}
	for i, h := range k.Holders {
		kv.Holders = append(kv.Holders, holderView{h, v.age(fmt.Sprint("h/", k.ID, i, h.PID), h.Age, h.Exact)})
	}
	names := map[namespace.Tag]string{}
	for _, o := range v.state.Picture.Keys {
		names[o.Tag] = o.Text
	}
	for i, w := range k.Waiters[:min(waitersShown, len(k.Waiters))] {
		kv.Waiters = append(kv.Waiters, v.waiter(k, i, w, names))
	}
	if k.Shown {
		kv.SQL, kv.Command = queries(k), commandKey(k)
	}
	kv.Steps = steps(k)
	return kv
}

func (v *view) waiter(k *incident.Key, i int, w *incident.Waiter, names map[namespace.Tag]string) waiterView {
	wv := waiterView{Waiter: w, Place: i + 1, Since: v.age(fmt.Sprint("w/", k.ID, w.Who(), w.Ahead, w.Label), w.Age, w.Process != nil)}
	if w.Left > 0 {
		wv.Left = incident.Age(w.Left.Round(5 * time.Second))
	}
	for _, t := range w.Holds {
		if name := names[t]; name != "" {
			wv.Holds = append(wv.Holds, name)
		}
	}
	return wv
}

func mode(shared bool) string {
	if shared {
		return "shared"
	}
	return "exclusive"
}

// queries returns queries that show the key in psql.
func queries(k *incident.Key) []string {
	var conditions []string
	for _, h := range k.Holders {
		if h.Tag != k.Tag {
			conditions = append(conditions, where(h.Tag))
		}
	}
	if k.Kind != incident.Semaphore { // a lock on its own key is independent of its slots
		conditions = append(conditions, where(k.Tag))
	}
	if gate := k.Turnstile(); gate.Valid() {
		conditions = append(conditions, where(gate)+" -- its turnstile, where the waiters behind the first one queue")
	}
	return []string{"SELECT l.pid, a.application_name, l.mode, l.granted, now() - l.waitstart AS waiting, a.state\n" +
		"FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid)\nWHERE l.locktype = 'advisory'\n" +
		"  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())\n  AND (" +
		strings.Join(conditions, "\n    OR ") + "\n  );"}
}

func where(t namespace.Tag) string {
	return fmt.Sprintf("(l.classid, l.objid, l.objsubid) = (%d, %d, %d)", t.ClassID, t.ObjID, t.ObjSubID)
}

// steps returns the possible actions for a key, the mildest first.
func steps(k *incident.Key) (all []step) {
	if len(k.Holders) == 0 {
		return nil
	}
	ask := false
	for _, h := range k.Holders {
		ask = ask || h.Process != nil && !h.Process.Silent
	}
	if ask && k.Shown && k.Kind == incident.Mutex {
		all = append(all, step{"Ask the holder to release it, if its program handles requests (Lock.Asked):", "pglatch ask " + incident.Shell(commandKey(k))})
	}
	if k.Kind == incident.Leading && k.Shown && ask {
		all = append(all, step{"Make the leader stop its work and let another one lead, if its program allows that:", "pglatch leader resign " + incident.Shell(k.Tag.String())})
	}
	for _, h := range k.Holders[:min(3, len(k.Holders))] {
		if h.Node != "" && h.Process != nil && !h.Process.Silent {
			all = append(all, step{"To move it to another node, make its node give up its shards:", "pglatch shards drain " + incident.Shell(k.Group) + " " + incident.Shell(h.Node)})
			continue
		}
		if h.Prepared {
			all = append(all, step{"Find the prepared transaction, then commit it or roll it back:", "SELECT gid, prepared, owner FROM pg_prepared_xacts WHERE database = current_database();"})
			continue
		}
		text := fmt.Sprintf("End the session of %s. A running process detects the loss within milliseconds, a stopped one when it resumes", h.Who())
		if h.Beside > 0 {
			text += fmt.Sprintf("; the session also loses %s besides this one", incident.Count(h.Beside, "lock", "locks"))
		}
		all = append(all, step{text + ":", fmt.Sprintf("pglatch terminate %d\nSELECT pg_terminate_backend(%d); -- the same, in psql", h.PID, h.PID)})
	}
	return all
}

// commandKey returns a key as an argument of a command: its name, unless the shown name is altered.
func commandKey(k *incident.Key) string {
	if k.Quoted {
		return k.Tag.String()
	}
	return k.Text
}
