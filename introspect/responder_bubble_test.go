package introspect

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// A leaving source is asked whether it is connected, and leaves in the same instant.
type leaving struct{ member *Membership }

func (l *leaving) Connected() bool {
	delete(l.member.of.members, l.member) // the responder's mutex is held, as by Leave
	return true
}

func (*leaving) Answer(Question, *Answer)                        {}
func (*leaving) Request(Request) []Reply                         { return nil }
func noDial(context.Context, *pgx.ConnConfig) (*pgx.Conn, error) { panic("nobody needs a connection") }

func TestAResponderWhoseLastSourceLeavesWhileItLooksEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		cc, err := pgx.ParseConfig("postgres://localhost/nowhere")
		require.NoError(t, err)
		source := new(leaving)
		source.member = Join(Member{Conn: cc, Connect: noDial, Source: source})
		source.member.Connected()
		time.Sleep(time.Minute)
		source.member.Leave()
	})
}
