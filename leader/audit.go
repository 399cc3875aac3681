package leader

// audit returns a problem that the backend found although renewals succeed or another node leads; nil = none.
// It logs the problem when it is new, then each minute, and when it is over. Only the goroutine that owns the
// backend may call it.
func (e *Elector) audit() error {
	if e.auditor == nil {
		return nil
	}
	err := e.auditor.Audit()
	e.record.audited(err)
	switch {
	case err != nil:
		if log := e.problem.about(err, e.log); log != nil {
			log.Warn("something is wrong with the election, which continues")
		}
	case e.problem.end():
		e.log.Info("nothing is wrong with the election any more")
	}
	return err
}

// auditFollower runs audit after a refused attempt and reports each new problem once.
func (d *drive) auditFollower() {
	before := d.problem.kind
	if err := d.audit(); err != nil && d.problem.kind != before {
		d.emit(Event{Kind: EventError, Err: err})
	}
}
