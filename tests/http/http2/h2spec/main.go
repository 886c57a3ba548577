// Runs h2spec, the conformance suite of HTTP/2, against a server, and writes its results as JUnit's XML.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/summerwind/h2spec"
	"github.com/summerwind/h2spec/config"
)

func main() {
	port := flag.Int("port", 0, "the server's port")
	path := flag.String("path", "/", "the path of the requests")
	secure := flag.Bool("tls", false, "use TLS")
	report := flag.String("report", "", "the file of the results")
	flag.Parse()
	passed, err := h2spec.Run(&config.Config{
		Host:         "127.0.0.1",
		Port:         *port,
		Path:         *path,
		Timeout:      5 * time.Second,
		MaxHeaderLen: 4000,
		JUnitReport:  *report,
		Strict:       true,
		TLS:          *secure,
		Insecure:     true,
		Sections:     []string{},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if !passed {
		os.Exit(1)
	}
}
