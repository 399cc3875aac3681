package leader

// audit returns what the backend finds wrong though renewals succeed, or somebody else leads; nil = nothing. It is logged
// when it is new, then each minute, and when it is over. It is for the goroutine that the backend belongs to.
func (e *Elector) audit() error {
	if e.auditor == nil {
		return nil
	}
	err := e.auditor.Audit()
	e.record.audited(err)
	switch {
	case err != nil:
		if log := e.problem.about(err, e.log); log != nil {
			log.Warn("something is wrong with the election, which goes on")
		}
	case e.problem.end():
		e.log.Info("nothing is wrong with the election any more")
	}
	return err
}

// auditFollower is audit after an attempt that was refused: each new problem is reported once.
func (d *drive) auditFollower() {
	before := d.problem.kind
	if err := d.audit(); err != nil && d.problem.kind != before {
		d.emit(Event{Kind: EventError, Err: err})
	}
}
