"""A server with workers under load, while everything is done to it that an operator and an accident can do.

``python -m tests.stress.served --seconds 60 --seed 5 --backend uring``; a failure prints the seed.

| file | noun |
| --- | --- |
| ``application`` | what is served: bytes that prove themselves |
| ``callers`` | clients, one for each implementation and way |
| ``client`` | a process with such clients, to be killed |
| ``state`` | what a process is doing when a request hangs |
| ``operator`` | the server's processes, and what is done to them |
| ``trial`` | phases: load, one fault each, and the rules that hold all along |
"""
