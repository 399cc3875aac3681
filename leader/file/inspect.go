package file

import (
	"context"
	"fmt"

	"github.com/pglatch/pglatch/leader/driver"
)

// Leader returns the present leader. It reads the file and needs no lock. ok is false if nobody leads or the
// lease has ended. If the lease's times are by another clock, the lease counts from
// when this Backend first saw it.
// Since is the wall-clock time of the leader's host.
func (b *Backend) Leader(ctx context.Context) (holder driver.Holder, ok bool, err error) {
	if ctx.Err() != nil {
		return driver.Holder{}, false, failed("inspect", b.path, context.Cause(ctx))
	}
	v, err := b.look()
	if v.damage != nil {
		err = v.damage
	}
	if err != nil || v.Holder == "" || v.free() {
		return driver.Holder{}, false, failed("inspect", b.path, err)
	}
	holder = driver.Holder{Identity: v.Holder, Term: driver.Term(v.Term), Since: v.AcquireTime}
	if v.PID != 0 {
		holder.Detail = fmt.Sprintf("pid %d", v.PID)
	}
	return holder, true, nil
}
