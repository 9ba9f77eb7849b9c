package main

import (
	"fmt"
	"os"
)

// setup makes the tenants of a new database.
const setup = `create table tenants (id text primary key, active boolean not null);
insert into tenants select 'tenant' || n, true from generate_series(1, 12) n;
`

// databaseURL returns DATABASE_URL. Without it, it says how to try the example and ends the
// process.
func databaseURL() string {
	url := os.Getenv("DATABASE_URL")
	if url == "" {
		fmt.Fprintln(os.Stderr, "tenants: set DATABASE_URL, such as to postgres://user@localhost/db, and run in that database:")
		fmt.Print(setup)
		os.Exit(1)
	}
	return url
}
