package actions

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"github.com/pglatch/pglatch/cmd/internal/lockserver"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/bearer"
)

// A Role is what a person may do. Each role includes those before it.
type Role int

// The roles.
const (
	Look Role = iota // sees the page
	Ask              // asks processes for what they can refuse
	End              // does what nobody can refuse
)

var roleNames = [...]string{"look", "ask", "end"}

// String returns the role's name, as the file of tokens has it.
func (r Role) String() string { return roleNames[r] }

// A Person is somebody who may use the page.
type Person struct {
	Name       string
	Role       Role
	credential bearer.Credential
	certified  bool // by a name of certificates, whose subject is the person's name
}

// ReadPeople reads a file of people, one a line:
//
//	TOKEN role=look|ask|end name=NAME [# comment]
//
// sha256:HEX stands for the token with this digest, and cert-cn:NAME and cert-san:NAME for client certificates with
// that name. Its errors quote no token.
func ReadPeople(flag, file string) ([]Person, error) {
	var all []Person
	err := lockserver.ReadCredentials(flag, file, func(c lockserver.CredentialLine) error {
		p, err := readPerson(c)
		if err == nil && slices.ContainsFunc(all, func(o Person) bool { return o.Name == p.Name }) {
			err = errors.New("the name is that of another line: the audit must tell them apart")
		}
		if err == nil && slices.ContainsFunc(all, func(o Person) bool { return o.credential == p.credential }) {
			err = errors.New("the token is that of another line: give each person a token")
		}
		all = append(all, p)
		return err
	})
	return all, err
}

func readPerson(c lockserver.CredentialLine) (p Person, err error) {
	digest, hashed := strings.CutPrefix(c.Secret, "sha256:")
	switch {
	case c.Certificate != "":
		p.credential, p.certified = bearer.Certificate(c.Certificate), true
		if err := bearer.CheckCertificate(c.Certificate); err != nil {
			return p, fmt.Errorf("the line %w", err)
		}
	case hashed:
		sum, err := hex.DecodeString(digest)
		if err != nil || len(sum) != sha256.Size {
			return p, errors.New("the digest is not 64 hexadecimal digits")
		}
		p.credential = bearer.Digest([sha256.Size]byte(sum))
	case len(c.Secret) < bearer.MinToken:
		return p, fmt.Errorf("the token has %d bytes: use %d random ones at least", len(c.Secret), bearer.MinToken)
	default:
		p.credential = bearer.Token(c.Secret)
	}
	role := -1
	for name, value := range c.Fields {
		switch name {
		case "role":
			if role = slices.Index(roleNames[:], value); role < 0 {
				return p, fmt.Errorf("the role is %q: use one of %s", program.Printable(value), strings.Join(roleNames[:], ", "))
			}
		case "name":
			p.Name = value
		default:
			return p, errors.New("there is more than a token: add role=… and name=… only")
		}
	}
	if p.certified {
		p.Name = cmp.Or(p.Name, c.Certificate)
	}
	switch {
	case role < 0:
		return p, errors.New("there is no role: add role=look, role=ask or role=end")
	case p.Name == "":
		return p, errors.New("there is no name, which the audit needs: add name=…")
	case len(p.Name) > bearer.MaxName || strings.ContainsFunc(p.Name, unicode.IsControl):
		return p, fmt.Errorf("the name has more than %d bytes, or control characters", bearer.MaxName)
	}
	p.Role = Role(role)
	return p, nil
}

// people are those whom a Server knows. Their lifetime ends when others replace them.
type people struct {
	set      bearer.Set
	all      []Person
	lifetime context.Context
	end      context.CancelFunc
}

func newPeople(all []Person) *people {
	p := &people{all: all}
	p.lifetime, p.end = context.WithCancel(context.Background())
	for _, one := range all {
		p.set = append(p.set, one.credential)
	}
	return p
}

// of returns who sent a request: by the Authorization header, else by the session of a cookie, else by the client's
// certificate. nil = nobody who is known.
func (p *people) of(r *http.Request, sessions *sessions) *Person {
	if len(r.Header["Authorization"]) > 0 {
		return p.at(p.set.Bearer(r.Header.Get("Authorization")))
	}
	if credential, ok := sessions.of(r); ok {
		return p.at(p.set.Index(credential))
	}
	leaf := bearer.Leaf(r.TLS)
	found := p.at(p.set.Certified(leaf))
	if found != nil {
		found.Name = cmp.Or(bearer.Subject(leaf), found.Name)
	}
	return found
}

func (p *people) at(i int) *Person {
	if i < 0 {
		return nil
	}
	found := p.all[i]
	return &found
}
