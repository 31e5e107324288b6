module fipd.io/testbed/registry

go 1.26

require github.com/google/go-containerregistry v0.19.0
