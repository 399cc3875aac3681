package locktable

// An EventKind names the method of Table that an Event is a call of.
type EventKind string

// The kinds of events. Calls that change nothing in the table are none, Hold among them.
const (
	EventCapacity    EventKind = "SetCapacity"
	EventClose       EventKind = "Close"
	EventComplete    EventKind = "Complete"
	EventEnter       EventKind = "Enter"
	EventWithdraw    EventKind = "Withdraw"
	EventAnswerIsDue EventKind = "AnswerIsDue"
	EventRelease     EventKind = "Release"
	EventGiveUp      EventKind = "GiveUp"
	EventConnected   EventKind = "Connected"
	EventUnmade      EventKind = "Unmade"
	EventDialFrom    EventKind = "DialFrom"
	EventVerified    EventKind = "Verified"
	EventRested      EventKind = "Rested"
	EventEnd         EventKind = "End"
	EventClosed      EventKind = "Closed"
	EventBorrow      EventKind = "Borrow"
	EventReturn      EventKind = "Return"
	EventPing        EventKind = "Ping"
	EventTake        EventKind = "Take"
	EventOverdue     EventKind = "Overdue"
	EventAnswer      EventKind = "Answer"
	EventNext        EventKind = "Next"
	EventStepped     EventKind = "Stepped"
	EventResume      EventKind = "Resume"
	EventReopened    EventKind = "Reopened"
	EventPolled      EventKind = "Polled"
	// EventCommands is a call of Commands. It is reported with what that returns, the others before they happen.
	EventCommands EventKind = "Commands"
)

// An Event is one call of the carrier: its parameters, as far as the method has them.
type Event struct {
	Kind      EventKind
	At        Instant // now, or the instant that is passed
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

// Record has f called with each event of the table.
func (t *Table) Record(f func(Event)) { t.record = f }

// watch gets each table that New makes; nil = nobody does.
var watch func(*Table)

// WatchAll has f called with each table that New makes from now on, before anything happens to it. It is called when no other goroutine runs.
func WatchAll(f func(*Table)) { watch = f }

// Twin returns an empty table with the limits of this one, that nobody watches.
func (t *Table) Twin() *Table {
	return &Table{limits: t.limits, keys: make(map[Tag]*Key), pools: make(map[Tag]*Key)}
}

// note reports an event, if somebody records them.
func (t *Table) note(kind EventKind, at Instant, n *Conn, r *Request, h *Holder) {
	if t.record != nil {
		t.record(Event{Kind: kind, At: at, Conn: n, Request: r, Holder: h})
	}
}
