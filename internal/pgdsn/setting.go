package pgdsn

import (
	"errors"
	"io/fs"
	"strings"
)

// A setting is one whose value pgx refuses, with the text that tells so: pgx has no
// other way to tell, and the rest of its text quotes the connection string.
type setting struct {
	told    string // what pgx's text holds
	name    string // as it stands in a connection string
	problem string
}

var settings = []setting{
	{"(sslmode is invalid)", "sslmode", "sslmode is none of disable, allow, prefer, require, verify-ca and verify-full"},
	{"(unable to load system certificate pool", "sslrootcert", "the system's root certificates cannot be read"},
	{"(unable to read CA file", "sslrootcert", "the file of sslrootcert cannot be read"},
	{"(unable to add CA to cert pool)", "sslrootcert", "the file of sslrootcert holds no certificate"},
	{`(both "sslcert" and "sslkey" are required)`, "sslcert", "sslcert and sslkey must be set together"},
	{"(unable to read sslkey", "sslkey", "the file of sslkey cannot be read"},
	{"(failed to decode sslkey)", "sslkey", "the file of sslkey holds no key in PEM form"},
	{"(unable to find sslpassword)", "sslkey", "the file of sslkey is encrypted, and sslpassword is missing"},
	{"(unable to decrypt key", "sslpassword", "sslpassword does not open the file of sslkey"},
	{"(unable to read cert", "sslcert", "the file of sslcert cannot be read"},
	{"(unable to load cert", "sslcert", "the files of sslcert and sslkey do not go together"},
	{": invalid sslcertmode", "sslcertmode", "sslcertmode is none of disable, allow and require"},
	{": invalid connect_timeout", "connect_timeout", "connect_timeout is not a number of seconds"},
	{": could not match ", "port", "there are neither as many ports as hosts, nor one port for all"},
	{": invalid port", "port", "a port is not a number from 1 to 65535"},
	{": unknown target_session_attrs", "target_session_attrs", "target_session_attrs is none of any, read-write, read-only, primary, standby and prefer-standby"},
	{": invalid min_protocol_version", "min_protocol_version", "min_protocol_version is not a version like 3.0"},
	{": invalid max_protocol_version", "max_protocol_version", "max_protocol_version is not a version like 3.0"},
	{": min_protocol_version cannot be greater", "min_protocol_version", "min_protocol_version is greater than max_protocol_version"},
	{": unknown channel_binding", "channel_binding", "channel_binding is none of disable, prefer and require"},
	{": invalid require_auth", "require_auth", "require_auth names a method that is not known"},
	{"(failed to read service file", "service", "the service file cannot be read"},
	{"(unable to find service", "service", "the service is not in the service file"},
	{": cannot parse statement_cache_capacity", "statement_cache_capacity", "statement_cache_capacity is not a number"},
	{": cannot parse description_cache_capacity", "description_cache_capacity", "description_cache_capacity is not a number"},
	{": invalid default_query_exec_mode", "default_query_exec_mode", "default_query_exec_mode is none that pgx knows"},
	{": cannot parse pool_max_conns", "pool_max_conns", "pool_max_conns is not a number"},
	{": pool_max_conns too small", "pool_max_conns", "pool_max_conns is less than 1"},
	{": cannot parse pool_min_conns", "pool_min_conns", "pool_min_conns is not a number"},
	{": cannot parse pool_min_idle_conns", "pool_min_idle_conns", "pool_min_idle_conns is not a number"},
	{": cannot parse pool_max_conn_lifetime_jitter", "pool_max_conn_lifetime_jitter", "pool_max_conn_lifetime_jitter is not a duration like 30s"},
	{": cannot parse pool_max_conn_lifetime", "pool_max_conn_lifetime", "pool_max_conn_lifetime is not a duration like 30m"},
	{": cannot parse pool_max_conn_idle_time", "pool_max_conn_idle_time", "pool_max_conn_idle_time is not a duration like 30m"},
	{": cannot parse pool_health_check_period", "pool_health_check_period", "pool_health_check_period is not a duration like 30s"},
	{": cannot parse pool_ping_timeout", "pool_ping_timeout", "pool_ping_timeout is not a duration like 5s"},
}

// settingError returns what is wrong with the value of a setting, nil if err is about
// something else. What pgx says stands behind the string that it quotes.
func settingError(dsn string, err error) *Error {
	text := err.Error()
	text = text[strings.LastIndexByte(text, '`')+1:]
	for _, s := range settings {
		if !strings.Contains(text, s.told) {
			continue
		}
		problem := s.problem
		switch {
		case errors.Is(err, fs.ErrNotExist):
			problem += ": it does not exist"
		case errors.Is(err, fs.ErrPermission):
			problem += ": permission denied"
		}
		at := strings.Index(dsn, s.name+"=") + 1
		if at == 0 && s.name == "port" && isURL(dsn) {
			return urlError(dsn)
		}
		return &Error{problem, at}
	}
	return nil
}
