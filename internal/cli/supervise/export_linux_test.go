package supervise

// ChildOnly returns the command without the signals to its group: a control.
func (c Command) ChildOnly() Command {
	c.childOnly = true
	return c
}

// Outlives returns the command without the signal at this process's death: a control.
func (c Command) Outlives() Command {
	c.outlives = true
	return c
}

// GoOnUntilStarted is goOnUntilStarted.
func GoOnUntilStarted() (started func()) { return goOnUntilStarted() }
