package locktable

// An EventKind names the method of Table that an Event calls.
type EventKind string

// The kinds of events. Calls that change nothing in the table are not events; Hold is one of these.
const (
	EventCapacity  EventKind = "SetCapacity"
	EventClose     EventKind = "Close"
	EventComplete  EventKind = "Complete"
	EventEnter     EventKind = "Enter"
	EventWithdraw  EventKind = "Withdraw"
	EventRelease   EventKind = "Release"
	EventGiveUp    EventKind = "GiveUp"
	EventConnected EventKind = "Connected"
	EventUnmade    EventKind = "Unmade"
	EventDialFrom  EventKind = "DialFrom"
	EventVerified  EventKind = "Verified"
	EventRested    EventKind = "Rested"
	EventEnd       EventKind = "End"
	EventClosed    EventKind = "Closed"
	EventBorrow    EventKind = "Borrow"
	EventReturn    EventKind = "Return"
	EventPing      EventKind = "Ping"
	EventTake      EventKind = "Take"
	EventAnswer    EventKind = "Answer"
	EventNext      EventKind = "Next"
	EventStepped   EventKind = "Stepped"
	EventResume    EventKind = "Resume"
	EventReopened  EventKind = "Reopened"
	EventPolled    EventKind = "Polled"
	// EventCommands is a call of Commands. It is reported with its result; the other events are reported before they
	// happen.
	EventCommands EventKind = "Commands"
)

// An Event is one call of the carrier, with the parameters of its method.
type Event struct {
	Kind      EventKind
	At        Instant // now, or the instant parameter
	Conn      *Conn
	Request   *Request
	Holder    *Holder
	Err       error // a cause, or that of a lost session
	Tag       Tag
	Flag      bool // pool, or hopeless
	NotBefore Instant
	Counts    [2]int // the capacity
	Replies   []Reply
	Commands  []Command
}

// Record makes the table call f with each event.
func (t *Table) Record(f func(Event)) { t.record = f }

// watch receives each table that New makes, before its first event; nil = no recording. internal/test/tabletrace sets it.
var watch func(*Table)

// Twin returns an empty table with the limits of this one, and without a recorder.
func (t *Table) Twin() *Table {
	return &Table{limits: t.limits, keys: make(map[Tag]*Key), pools: make(map[Tag]*Key)}
}

// note reports an event, if the table is recorded.
func (t *Table) note(kind EventKind, at Instant, n *Conn, r *Request, h *Holder) {
	if t.record != nil {
		t.record(Event{Kind: kind, At: at, Conn: n, Request: r, Holder: h})
	}
}

// begin notes an event that has no other parameters, and sets the table's time. It reports false if the table is broken.
func (t *Table) begin(kind EventKind, now Instant, n *Conn, r *Request, h *Holder) bool {
	t.note(kind, now, n, r, h)
	if t.broken != nil {
		return false
	}
	t.now = now
	return true
}
