package pgserver

// Dir is the server's temporary directory.
func (s *Server) Dir() string { return s.dir }

// WatchdogPID is the process id of the server's watchdog.
func (s *Server) WatchdogPID() int { return s.dog.cmd.Process.Pid }
