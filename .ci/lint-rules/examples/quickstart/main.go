// Command quickstart may print, sleep and show its metrics.
package main

import (
	"fmt"
	"time"

	_ "github.com/prometheus/client_golang/prometheus"
)

func main() {
	time.Sleep(time.Millisecond)
	fmt.Println("hello")
}
