package supervise

// GoOnUntilStarted is goOnUntilStarted.
func GoOnUntilStarted() (started func()) { return goOnUntilStarted() }
