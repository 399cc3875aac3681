package prove

// txEnds takes a lock in a transaction, and ends the transaction with a statement.
func (x *exam) txEnds(how string) {
	if !x.begin(x.a) {
		return
	}
	x.saw("granted", x.txTry(x.a, x.key))
	x.saw("refused", !x.txTry(x.b, x.key))
	x.run(x.a, how)
	x.saw("freed", x.txTry(x.b, x.key))
}

func observeTxLocks(x *exam) { x.txEnds("commit") }

func observeRollback(x *exam) { x.txEnds("rollback") }

func observeSavepoint(x *exam) {
	before, after := x.key, x.key.other()
	if !x.begin(x.a) {
		return
	}
	x.saw("granted", x.txTry(x.a, before))
	x.run(x.a, "savepoint pglatch_prove")
	x.saw("granted", x.txTry(x.a, after) && x.seen["granted"])
	x.saw("refused", !x.txTry(x.b, after))
	x.run(x.a, "rollback to savepoint pglatch_prove")
	x.saw("freed", x.txTry(x.b, after))
	x.saw("kept", !x.txTry(x.b, before))
	x.run(x.a, "commit")
	x.saw("ended", x.txTry(x.b, before))
}
