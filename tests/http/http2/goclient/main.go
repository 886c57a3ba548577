// A client with Go's own HTTP/2: requests at a time, content in both directions, and trailers.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
)

func check(is bool, what string, values ...any) {
	if !is {
		fmt.Fprintf(os.Stderr, what+"\n", values...)
		os.Exit(1)
	}
}

func fetch(client *http.Client, method, url string, content []byte) (*http.Response, []byte) {
	request, err := http.NewRequest(method, url, bytes.NewReader(content))
	check(err == nil, "%v", err)
	response, err := client.Do(request)
	check(err == nil, "%s: %v", url, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	check(err == nil, "%s: %v", url, err)
	check(response.ProtoMajor == 2, "%s: %s", url, response.Proto)
	return response, body
}

func main() {
	url := flag.String("url", "", "the server")
	authority := flag.String("authority", "", "the certificate that is trusted")
	flag.Parse()
	var protocols http.Protocols
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &protocols}
	if *authority != "" {
		pem, err := os.ReadFile(*authority)
		check(err == nil, "%v", err)
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(pem)
		transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	client := &http.Client{Transport: transport}
	var all sync.WaitGroup
	for range 300 {
		all.Go(func() {
			_, body := fetch(client, "GET", *url+"/", nil)
			check(string(body) == "hello", "%q", body)
		})
	}
	all.Wait()
	for _, size := range []int{0, 1, 3_000_000} {
		_, body := fetch(client, "POST", *url+"/upload", make([]byte, size))
		check(strings.Contains(string(body), fmt.Sprintf(`"bytes": %d,`, size)), "%s", body)
		_, body = fetch(client, "GET", fmt.Sprintf("%s/burst/%d", *url, size), nil)
		check(len(body) == size, "%d of %d bytes", len(body), size)
	}
	response, body := fetch(client, "GET", *url+"/trailers", nil)
	check(string(body) == "body" && response.Trailer.Get("x-checksum") == "42", "%v", response.Trailer)
}
