// Command release rehearses a release, and makes one.
//
//	go run ./release -root ..                    rehearse
//	go run ./release -root .. -version v0.1.0    print what a release would do
//	go run ./release -root .. -version v0.1.0 -do
//
// A rehearsal packs the modules of a tree into a folder that serves as a module
// proxy. Then it builds every module, and a program that uses it, from what was
// packed: without the workspace and its replaces, as a user does.
//
// A release is one commit, with a tag for each module. The commit sets the version
// that the modules require of each other, their go.sum, and the headings of
// CHANGELOG.md. Nothing is pushed.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
)

func main() {
	root := flag.String("root", ".", "the `folder` of the root module")
	version := flag.String("version", "", "the `version` to release, such as v0.1.0; empty: rehearse")
	do := flag.Bool("do", false, "commit and tag, instead of printing what would be done")
	flag.Parse()
	var err error
	switch {
	case *version != "":
		var report string
		report, err = release(*root, *version, *do)
		fmt.Print(report)
	case *do:
		err = errors.New("-do needs a -version")
	default:
		err = rehearse(*root)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}
