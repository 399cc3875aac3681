// Package turns gives each entity a mailbox in PostgreSQL. Any replica can handle an entity's messages. One
// turn of an entity runs at a time, and turns take the messages in the order in which they were sent. It is
// for chat services, agents, webhooks and devices: programs that must handle the messages of one conversation
// one after the other.
//
//	chat, err := turns.Open(ctx, turns.Config{Pool: pool, Name: "chat", Namespace: Conversations, Locker: locker})
//
//	// Any replica, last in a transaction of the caller's:
//	ticket, err := chat.Send(ctx, tx, conversation, turns.Message{ID: webhookID, Body: body})
//
//	// Replicas that work:
//	err = chat.Serve(ctx, func(ctx context.Context, t *turns.Turn) error {
//		reply, err := answer(ctx, t.Messages())
//		if err != nil {
//			return err // again later
//		}
//		return t.Commit(ctx, func(tx pgx.Tx) error { return save(ctx, tx, reply) })
//	})
//
// # What it guarantees
//
//   - Order: an entity's messages are numbered in the order in which the transactions of their senders commit.
//     Turns take them in that order. A message that becomes a dead letter leaves the order.
//   - One at a time: a running turn holds the mutex of its entity. That is the lock of locker.Acquire on the
//     entity's key, so turns and other holders of this lock exclude each other. Turns of one entity overlap only
//     if mutexes do: if a process loses its lock and ignores its context. See package advisory.
//   - Once: a Commit deletes exactly the messages that its turn took, in the transaction of the handler's own
//     writes. It checks the turn's token under a lock on the entity's row. If another turn began, or a message is
//     missing, the turn is stale, and nothing happens. This does not depend on the mutex.
//   - Attempts are counted before they begin: one commit records them for all entities of a claim. So a
//     message that kills its process also reaches MaxAttempts.
//   - No lost message: a message whose Send was committed stays until a turn commits it, somebody purges or
//     skips it, or it is a dead letter whose time is over.
//   - Fair: a free worker takes the entity that has been ready for longest. After its turn an entity goes to the
//     end. While a worker is free, no entity waits for longer than a second, or than five times what a look takes,
//     if that is more. If an entity's node was stopped or cut off, it waits no longer than the SessionTTL of that
//     node's Locker.
//
// # What it does not guarantee
//
//   - A handler's effects outside the database, such as a request to another service, can happen twice: the
//     process can die after the effect and before the Commit. Only the Commit is fenced.
//   - After the promotion of an asynchronous standby, messages and commits that the old primary acknowledged can be
//     missing, so a message can be delivered again. Synchronous standbys prevent that.
//   - There is no order between entities.
//
// # How it works
//
//	Send:   lock of the entity's senders ──▶ number from a sequence ──▶ message ──▶ COMMIT, which frees the lock
//	Serve:  look ──▶ claim many entities (one commit: token, attempt) ──▶ mutex of each ──▶ handler
//	Commit: handler's writes ──▶ token under the row's lock ──▶ delete the messages ──▶ COMMIT ──▶ mutex free
//
// A sequence alone reorders messages: a transaction can get a number, and commit after a later one. So Send first
// takes an advisory lock that its transaction keeps. PostgreSQL frees it after the commit is visible to others. A
// transaction that rolls back leaves only a gap in the numbers.
//
// Senders of one entity therefore wait for each other until the end of their transactions. So make Send the last
// statement of a transaction.
//
// Idle servers look for work once a second. Send notifies them, except while a server that has found
// work looks every 10 ms. Without notifications, as behind a transaction pooler, the next look finds
// the message.
//
// # What a turn takes
//
//	one message                        the default
//	all that wait                      Config.Batch; with Config.Quiet, a burst becomes one turn
//	what comes while it runs           Turn.More, which the handler calls whenever it likes
//	nothing while the entity is busy   Config.RefuseBusy: Send returns ErrBusy
//
// Mailbox.Interrupt ends the context of a running turn. Any replica can call it.
//
// # When things go wrong
//
//	the handler fails or panics         the messages stay; the entity pauses, longer each time
//	MaxAttempts are used up             the messages are dead letters; the entity continues, or stops (OnDead)
//	the process is killed               another node has the turn when the server ends its session, mostly in milliseconds
//	the process is stopped or cut off   another node has the turn after the Locker's SessionTTL; a later Commit is stale
//	the node's lock is lost             the contexts of its turns end, and the node continues under another name
//	a commit has no answer              return its error: the next turn has the messages that are left
//	the node shuts down                 its turns may continue for Config.Finish; then their contexts end
//	the server is down                  Serve retries; Send returns the driver's error
//	the Locker is full                  the entity waits
//	opposite orders of sends            ErrDeadlock for one of them, after deadlock_timeout
//	an old snapshot                     ErrConflict: try the whole transaction again
//
// # What it needs
//
// It needs PostgreSQL 14 or later, and the schema of Schema or Mailbox.Migrate. A role that sends needs no right on a
// table; Grants returns the rights of senders and servers. A server needs a Locker, which connects directly or
// through a pooler in session mode. Each running turn holds one of the Locker's locks, and each node holds two more.
package turns
