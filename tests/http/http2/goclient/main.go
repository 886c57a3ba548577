// A client with Go's own HTTP/2: requests at a time, content in both directions, and trailers.
package main

import (
	"bufio"
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

// download reads a response in pieces of 4 KiB, as bufio does. The client gives credit after each of them.
func download(client *http.Client, url string) int {
	response, err := client.Get(url)
	check(err == nil, "%s: %v", url, err)
	defer response.Body.Close()
	reader := bufio.NewReaderSize(response.Body, 4096)
	size := 0
	for {
		_, err := reader.ReadByte()
		if err == io.EOF {
			return size
		}
		check(err == nil, "%s: %v after %d bytes", url, err, size)
		read, err := reader.Discard(reader.Buffered())
		check(err == nil, "%s: %v", url, err)
		size += 1 + read
	}
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
	const large = 48_000_000
	size := download(client, fmt.Sprintf("%s/flood/%d", *url, large))
	check(size == large, "%d of %d bytes", size, large)
	response, body := fetch(client, "GET", *url+"/trailers", nil)
	check(string(body) == "body" && response.Trailer.Get("x-checksum") == "42", "%v", response.Trailer)
}
