module uringcore.test/goclient

go 1.26.0
