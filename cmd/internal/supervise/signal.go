package supervise

import (
	"os"
	"os/signal"
)

// NotifyOf returns a channel with signals. INT and HUP stay ignored if this process was started to
// ignore them, as by nohup(1); package signal cannot detect that for others. NotifyOf affects the
// whole process, until stop.
func NotifyOf(all ...os.Signal) (signals <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 16)
	for _, s := range all {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
	return c, func() { signal.Stop(c) }
}
