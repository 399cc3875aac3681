package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/gauge"
)

// A SendWay is a way to store messages.
type SendWay struct {
	Name  string
	Hand  bool // the same rows, without Send
	Awake bool // as while a server finds work: Send does not notify
}

// SendWays are all that Senders compares. The first one is what others are compared with.
var SendWays = []SendWay{
	{"the same rows by hand, without NOTIFY", true, false},
	{"Send, while a server finds work", false, true},
	{"Send, while no server finds work: each one notifies", false, false},
}

// handRows stores the rows that Send stores for an entity's first message.
const handRows = `INSERT INTO pglatch_turns.messages (mailbox, entity, number, position, id, trace, sent_at, body)
	VALUES ('bench', $1, nextval('pglatch_turns.number'), 1, '', '', clock_timestamp(), 'x') RETURNING number`

const handEntity = `INSERT INTO pglatch_turns.entities (mailbox, entity, state, ready_at, after) VALUES ('bench', $1, 'ready', clock_timestamp(), $2) ON CONFLICT DO NOTHING`

// sendEntities is how many entities each writer sends to.
const sendEntities = 200

// A Sending is what was measured. The times are those of processors, for each transaction.
type Sending struct {
	Rate           float64 // transactions a second
	Server, Client time.Duration
}

// Senders measures how many transactions a second so many writers commit. Each transaction sends a message. Nobody takes them.
func Senders(ctx context.Context, admin string, way SendWay, writers int, duration time.Duration) (result Sending, err error) {
	site, remove, err := newSite(ctx, admin, 1, fmt.Sprintf("pool_max_conns=%d&pool_min_conns=%d", writers+5, writers+5))
	if err != nil {
		return result, err
	}
	defer remove()
	box, err := openTurns(ctx, site, 1)
	if err != nil {
		return result, err
	}
	defer box.Close()
	pool := site.Pool
	if way.Awake {
		if _, err := pool.Exec(ctx, "UPDATE pglatch_turns.mailboxes SET awake_until = 'infinity'"); err != nil {
			return result, err
		}
	}
	send := func(ctx context.Context, entity string) error {
		if !way.Hand {
			return box.post(ctx, entity)
		}
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			var number int64
			if err := tx.QueryRow(ctx, handRows, entity).Scan(&number); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, handEntity, entity, number-1)
			return err
		})
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var sent atomic.Int64
	var sending sync.WaitGroup
	failed := make(chan error, writers)
	for w := range writers {
		sending.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if err := send(context.WithoutCancel(ctx), fmt.Sprint(w*sendEntities+n%sendEntities)); err != nil {
					failed <- err
					return
				}
				sent.Add(1)
			}
		})
	}
	defer sending.Wait()
	defer stop()
	if err := last(ctx, duration/5, failed); err != nil {
		return result, err
	}
	var pids []int
	if err := pool.QueryRow(ctx, "SELECT array_agg(pid) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'").Scan(&pids); err != nil {
		return result, err
	}
	server, errServer := gauge.Processors(pids...)
	client, errClient := gauge.OwnProcessor()
	before, began := sent.Load(), time.Now()
	if err := last(ctx, duration, failed); err != nil {
		return result, err
	}
	took, n := time.Since(began), sent.Load()-before
	serverAfter, errServerAfter := gauge.Processors(pids...)
	clientAfter, errClientAfter := gauge.OwnProcessor()
	count := time.Duration(max(n, 1))
	return Sending{float64(n) / took.Seconds(), (serverAfter - server) / count, (clientAfter - client) / count}, errors.Join(errServer, errClient, errServerAfter, errClientAfter)
}
