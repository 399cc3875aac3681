package pgdsn

import "github.com/jackc/pgx/v5"

// A FieldError says which field of a Config with a DSN and a ConnConfig is wrong, for
// the error of the package whose Config it is.
type FieldError struct{ Field, Value, Remedy string }

func (e *FieldError) Error() string { return e.Field + " is " + e.Value + ": " + e.Remedy }

// Connection returns the settings that a Config's fields DSN and ConnConfig name, of
// which one must be set; a copy that is the caller's. The error is a *FieldError.
func Connection(dsn string, cc *pgx.ConnConfig) (*pgx.ConnConfig, *FieldError) {
	switch {
	case dsn == "" && cc == nil:
		return nil, &FieldError{"DSN", "empty", "set it to the database's URL, such as postgres://localhost/shop, or set ConnConfig"}
	case dsn != "" && cc != nil:
		return nil, &FieldError{"DSN", "set beside ConnConfig", "set one of the two"}
	case cc == nil:
		cc, err := Parse(dsn)
		if err != nil {
			return nil, &FieldError{"DSN", "invalid", err.Error()}
		}
		return cc, nil
	case cc.DialFunc == nil || cc.BuildFrontend == nil:
		return nil, &FieldError{"ConnConfig", "not made by pgx.ParseConfig", "make it with pgx.ParseConfig and change the result"}
	}
	return cc.Copy(), nil
}
