// Command registry is the OCI registry of go-containerregistry, as `crane registry serve` runs it, over TLS.
package main

import (
	"flag"
	"log"
	"net/http"

	"github.com/google/go-containerregistry/pkg/registry"
)

func main() {
	address := flag.String("address", "127.0.0.1:0", "where to listen")
	certificate := flag.String("cert", "", "PEM file of the certificate")
	key := flag.String("key", "", "PEM file of its key")
	flag.Parse()
	log.Fatal(http.ListenAndServeTLS(*address, *certificate, *key, registry.New()))
}
