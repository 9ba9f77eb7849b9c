package main

import (
	"fmt"
	"os"
)

// setup makes the tenants of a new database.
const setup = `create table tenants (id text primary key, active boolean not null);
insert into tenants select 'tenant' || n, true from generate_series(1, 12) n;
`

// init says how to try the example. A program of your own needs no such file.
func init() {
	if os.Getenv("DATABASE_URL") == "" {
		fmt.Fprintln(os.Stderr, "tenants: set DATABASE_URL, such as to postgres://user@localhost/db, and run in that database:")
		fmt.Print(setup)
		os.Exit(1)
	}
}
