package sqlite

// syncDir does nothing: NTFS logs names itself.
func syncDir(string) error { return nil }
