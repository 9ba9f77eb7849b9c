// Package browsertest tests the pages of package dashboard in a real browser.
//
// Its tests are compiled with the build tag browser only, because they take 20 s of processor
// time, and pages that others keep waiting time out. They need chromium-headless-shell, or
// another Chromium, and are skipped without it.
//
//	go test -tags browser ./examples/browsertest
//
//	-browser.axe FILE       check accessibility with this axe.min.js of axe-core
//	-browser.pictures DIR   write a picture of each page to this folder
//
// The browser reaches only the loopback interface: all other requests go to a proxy that
// refuses and records them.
package browsertest
