package web

// Actions reports whether the page loads the script of actions.
func (v *view) Actions() bool { return v.page.config.Actions }
