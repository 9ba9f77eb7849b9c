package recruit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/f8949c05/orchestrator/recruit"
)

// A cache calls Enlist on each hit to clean itself up.
func Example() {
	ctx := context.Background()
	r, err := recruit.New(recruit.WithSeed(1)) // a seed makes the output repeatable
	if err != nil {
		fmt.Println(err)
		return
	}
	expired := 100
	err = r.Install("expire", 0.1, recruit.JobFunc(func(context.Context) error {
		expired -= min(expired, 5) // a few at a time
		return nil
	}))
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 100 {
		// … a hit of the cache …
		r.Enlist(ctx)
	}
	for _, j := range r.Jobs() {
		fmt.Printf("%s: %d recruits, %d left to expire\n", j.Name, j.Recruited, expired)
	}
	// Output:
	// expire: 14 recruits, 30 left to expire
}

// A web server enlists when it has answered a request.
func ExampleRecruiter_Middleware() {
	r, err := recruit.New()
	if err != nil {
		fmt.Println(err)
		return
	}
	compacted := make(chan struct{})
	err = r.Install("compact", 1, recruit.JobFunc(func(context.Context) error {
		close(compacted) // runs once, because there is one request
		return nil
	}))
	if err != nil {
		fmt.Println(err)
		return
	}
	server := httptest.NewServer(r.Middleware(http.NotFoundHandler()))
	res, err := http.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = res.Body.Close()
	<-compacted // Close would drop a job that has not begun
	server.Close()
	_ = r.Close(context.Background()) // waits for runs
	fmt.Println(res.Status, "and compacted")
	// Output:
	// 404 Not Found and compacted
}
