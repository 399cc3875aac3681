package gocronlock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jonboulle/clockwork"

	"github.com/pglatch/pglatch/adapters/gocronlock"
	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/once"
	"github.com/pglatch/pglatch/once/postgres"
)

// scheduler is the role of a process with a scheduler, whose clock goes on when the test says so.
const scheduler = "scheduler"

// ttl is how long the tick of a node that died waits for another.
const ttl = 8 * time.Second

type nodeConfig struct {
	DSN     string
	Name    string
	Clock   time.Time
	Control bool      // a lock around the job
	Die     time.Time // kill -9 in the middle of this tick's first run
}

func runNode(ctx context.Context, c nodeConfig) error {
	pool, err := pgxpool.New(ctx, c.DSN)
	if err != nil {
		return err
	}
	fired := make(chan error, 1)
	locker, of, err := c.locker(ctx, pool, fired)
	if err != nil {
		return err
	}
	clock := clockwork.NewFakeClockAt(c.Clock)
	s, err := gocron.NewScheduler(gocron.WithClock(clock), gocron.WithLocation(time.UTC), gocron.WithDistributedLocker(locker))
	if err != nil {
		return err
	}
	tell := func(_ uuid.UUID, _ string, err error) { fired <- err }
	job, err := s.NewJob(gocron.CronJob("* * * * *", false), gocron.NewTask(func(ctx context.Context) error {
		tick, token := clock.Now().Truncate(time.Minute), uint64(0)
		if of != nil {
			run, _ := of.Context("report")
			claim, _ := once.ClaimOf(run)
			tick, token = claim.Tick, claim.Token
		}
		if tick.Equal(c.Die) && token == 1 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		_, err := pool.Exec(ctx, "INSERT INTO runs VALUES ($1, $2, $3)", tick, c.Name, int64(token))
		return err
	}), gocron.WithName("report"), gocron.WithEventListeners(
		gocron.AfterJobRuns(func(id uuid.UUID, name string) {
			if of != nil { // else the control does, after its Unlock
				tell(id, name, nil)
			}
		}),
		gocron.AfterJobRunsWithError(tell), gocron.AfterLockError(tell),
	))
	if err != nil {
		return err
	}
	if of != nil {
		of.Bind(s)
	}
	s.Start()
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if err := planned(ctx, job, clock); err != nil {
			return err
		}
		clock.Advance(time.Minute)
		if err := <-fired; err != nil && !errors.Is(err, once.ErrTaken) && !errors.Is(err, advisory.ErrHeld) {
			return err
		}
		fmt.Println("fired")
	}
	return s.Shutdown()
}

func (c nodeConfig) locker(ctx context.Context, pool *pgxpool.Pool, fired chan<- error) (gocron.Locker, *gocronlock.Locker, error) {
	if c.Control {
		locks, err := advisory.Open(ctx, advisory.Config{DSN: c.DSN})
		return aroundTheJob{locks, fired}, nil, err
	}
	store, err := postgres.New(postgres.Config{Pool: pool, CreateTable: true})
	if err != nil {
		return nil, nil, err
	}
	runner, err := once.New(once.Config{Store: store, Node: c.Name, TTL: ttl, Wait: time.Minute, Early: once.MaxEarly})
	if err != nil {
		return nil, nil, err
	}
	l := gocronlock.NewLocker(runner, nil)
	return l, l, nil
}

// aroundTheJob is the control: a lock that is held while the job runs.
type aroundTheJob struct {
	*advisory.Locker

	fired chan<- error
}

var jobs = namespace.Must(1, "job")

func (a aroundTheJob) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	key, err := jobs.Text(job)
	if err != nil {
		return nil, err
	}
	lock, err := a.TryAcquire(ctx, key)
	return held{lock, a.fired}, err
}

type held struct {
	*advisory.Lock

	fired chan<- error
}

func (h held) Unlock(context.Context) error {
	err := h.Release()
	h.fired <- err
	return err
}

// A node is a process.
type node struct{ *proctest.Process }

func start(t *testing.T, c nodeConfig) node {
	t.Helper()
	n := node{proctest.Start(t, proctest.As(t, scheduler, c))}
	n.Expect("ready")
	return n
}

// minute lets a minute pass on the node's clock, and waits until the job was run, or was not. It is false if the node died.
func (n node) minute() bool {
	n.Tell("minute")
	line, ok := n.Stdout.Line(nil)
	return ok && line == "fired"
}

func TestMain(m *testing.M) {
	proctest.Play(scheduler, runNode)
	pgtest.Main(m)
}
